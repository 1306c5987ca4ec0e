"""Copies the artifacts of resting trials to out_dir and keeps the campaign's documents true.

Owns when what is exported and what happens when out_dir fails: named, retried, nothing lost, no trial held up (the score is in the ledger
already).  A trial's run directory is removed only after its files are in out_dir, hashed and recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from anyio import from_thread, to_thread

from marathond.core.errors import ArtifactError
from marathond.core.text import plural
from marathond.flow.collecting import collect_if_missing
from marathond.flow.documents import job_view, trial_view
from marathond.flow.turns import alone_now
from marathond.flow.world import World, log
from marathond.ledger.verbs import archive, artifacts, campaigns, disclosures, findings, show
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.ledger.verbs.context import cell_context
from marathond.ledger.verbs.spent import agent_spent
from marathond.ports.agent import RunDir
from marathond.tasks.artifacts import Wanted, everything, export_tree
from marathond.tasks.atomic import write_atomic
from marathond.tasks.layout import TrialLine, job_documents, line_of, trial_documents, trial_folder
from marathond.tasks.paths import translate
from marathond.tasks.removal import remove_tree

TICK_S = 15.0
BATCH = 20
"""Trials per step; their folders are complete before the ledger says so."""
PARTS = ("agent", "verifier", "artifacts")
KEPT = "agent"
"""The part that also holds what was kept of the agent's run."""


class Exporter:
    def __init__(self, world: World) -> None:
        self.world = world
        self._lines: dict[str, dict[int, TrialLine]] = {}
        self._seen_event = 0
        self._finding_may_stand = True
        """Also from an earlier life, so the first success ends it; later ones need not write that nothing is wrong."""

    async def run(self) -> None:
        """For ever.  A failing out_dir is named and tried again."""
        while True:
            if not await alone_now(self.world):  # copying gigabytes beside a verifier that times code would show in its times
                await self.step()
            await self.world.export_wake.wait(TICK_S)

    async def step(self) -> None:
        world, subject = self.world, str(self.world.fixed.out_dir)
        try:
            resting = [(t, Path(at)) for t, at in await world.ledger.read(artifacts.not_exported_in) if t not in world.driven]
            theirs = await self._of_others({folder for _, folder in resting})
            waiting = [trial_id for trial_id, folder in resting if folder not in theirs]
            copied = {trial_id: await self._copied(trial_id) for trial_id in waiting[:BATCH]}
            # Files, then documents, then the row that says they are there, then the run directory: a kill in between repeats, never loses.
            await self._documents(copied.keys())
            for trial_id, (folder, records) in copied.items():
                now_ms = world.clock.wall_ms()
                await world.ledger.write(artifacts.exported, trial_id, folder=folder, records=records, now_ms=now_ms)
                await to_thread.run_sync(_remove, world.run_dir(trial_id).root, from_thread.check_cancelled)
            if len(waiting) > BATCH:
                world.export_wake.ring()
            for place, ledger in sorted(theirs.items()):
                count = plural(sum(at == place for _, at in resting), "trial")
                held = f"holds artifacts of ledger {ledger}, this is ledger {world.fixed.ledger_id}: {count} of this one must wait"
                raise ArtifactError("foreign", str(place), held)
        except ArtifactError as error:
            self._finding_may_stand = True
            log.error("export_failed", path=error.path, code=error.code, detail=error.detail)
            await world.ledger.write(
                findings.raise_finding,
                code="export_failed",
                severity="error",
                subject=subject,
                detail=f"artifacts wait in state_dir and are tried again: {error}",
                campaign_id=None,
                now_ms=world.clock.wall_ms(),
            )
        else:
            if self._finding_may_stand:
                await world.ledger.write(findings.close_finding, code="export_failed", subject=subject, now_ms=world.clock.wall_ms())
                self._finding_may_stand = False

    async def _of_others(self, folders: Collection[Path]) -> dict[Path, str]:
        """Campaigns' folders that another ledger writes, and which: a copy must not overwrite what its original keeps true (fault f14)."""
        by = {folder: await to_thread.run_sync(written_by, folder) for folder in folders}
        return {folder: ledger for folder, ledger in by.items() if ledger not in (None, self.world.fixed.ledger_id)}

    async def _copied(self, trial_id: int) -> tuple[str, list[ArtifactRecord]]:
        """Folder relative to out_dir, and what was copied there."""
        await collect_if_missing(self.world, trial_id)
        context = await self.world.ledger.read(cell_context, trial_id)
        folder = f"{context.campaign}/{trial_folder(trial_id, context.task, context.arm, context.replicate)}"
        run = self.world.run_dir(trial_id)
        return folder, distinct(await to_thread.run_sync(self._copy, run, Path(context.out_dir) / folder))

    def _copy(self, run: RunDir, target: Path) -> list[ArtifactRecord]:
        """Each part by itself: what the agent wrote must not crowd out what the verifier wrote, nor what we wrote about the agent."""
        ours = {path.name for path in run.kept.iterdir()} if run.kept.is_dir() else set()
        clashes: set[str] = set()

        def theirs(parts: tuple[str, ...], kind: str) -> bool:
            if parts[0] in ours:
                clashes.add(parts[0])
            return parts[0] not in ours

        records = self._part(run.kept, target, KEPT, everything) if ours else []
        for part in PARTS:
            if (run.logs / part).is_dir():
                records += self._part(run.logs / part, target, part, theirs if part == KEPT else everything)
        why = "the container's; marathond's own has that name"
        return records + [ArtifactRecord(f"{KEPT}/{name} (in the container)", "", 0, why) for name in sorted(clashes)]

    def _part(self, source: Path, target: Path, part: str, wanted: Wanted) -> list[ArtifactRecord]:
        # A daemon that is told to stop does not wait for gigabytes: the next one copies this trial anew.
        found = export_tree(
            source,
            target / part,
            max_bytes=self.world.fixed.max_artifact_bytes,
            max_files=self.world.fixed.max_artifact_files,
            checkpoint=from_thread.check_cancelled,
            wanted=wanted,
        )
        return [ArtifactRecord(f"{part}/{r.path}", r.sha256, r.size_bytes, r.skipped) for r in found]

    async def _documents(self, fresh: Collection[int]) -> None:
        """Documents of the ``fresh`` trials and of every other that changed, then their campaigns'.  A later void changes them again."""
        changed, newest = await self.world.ledger.read(artifacts.resting_changed_since, self._seen_event)
        known = {trial_id for trial_id, _ in changed}
        for trial_id in fresh:
            if trial_id not in known:
                changed.append((trial_id, (await self.world.ledger.read(cell_context, trial_id)).campaign))
        for name in sorted({campaign for _, campaign in changed}):
            await self._campaign_documents(name, [trial_id for trial_id, campaign in changed if campaign == name], fresh)
        self._seen_event = newest

    async def _campaign_documents(self, name: str, changed: Sequence[int], fresh: Collection[int]) -> None:
        """By the trials' own campaign, which need not be the one this life admits for."""
        ledger, fixed = self.world.ledger, self.world.fixed
        campaign = await ledger.read(campaigns.campaign_by_name, name)
        assert campaign is not None
        top = Path(campaign.out_dir) / campaign.name
        if theirs := await self._of_others([top]):
            log.warning("documents_of_another_ledger", folder=str(top), ledger=theirs[top])
            return
        arms = await ledger.read(campaigns.arms_of, campaign.campaign_id)
        sides = await ledger.read(campaigns.void_sides)
        told = await ledger.read(disclosures.told, campaign.campaign_id)
        lines = self._lines.setdefault(name, {})
        pruned = await ledger.read(archive.pruned_trials)
        for trial_id in changed:
            shown = await ledger.read(show.show, trial_id)
            sums = await ledger.read(agent_spent, trial_id)
            arm = next(arm for arm in arms if arm.name == shown.context.arm)
            view = trial_view(fixed.ledger_id, shown, arm, sides, sums.models, told)
            lines[trial_id] = line_of(view)
            if trial_id in fresh or (shown.folder is not None and trial_id not in pruned):
                c = shown.context
                folder = Path(c.out_dir) / c.campaign / trial_folder(trial_id, c.task, c.arm, c.replicate)
                write = self._write if trial_id in fresh else self._renew
                await to_thread.run_sync(write, folder, trial_documents(view))
        view_of_all = job_view(
            fixed.ledger_id,
            campaign,
            arms,
            await ledger.read(campaigns.tasks_of, campaign.campaign_id),
            [lines[key] for key in sorted(lines)],
            await ledger.read(campaigns.progress, campaign.campaign_id),
            self.world.knobs.limits.concurrency,
            told,
        )
        await to_thread.run_sync(self._write, top, job_documents(view_of_all))

    @classmethod
    def _renew(cls, folder: Path, documents: dict[str, bytes]) -> None:
        """Where the folder stands still: a person may prune it at this moment, and then it must not come back."""
        if folder.is_dir():
            try:
                for name, data in documents.items():
                    write_atomic(folder / name, data)
            except ArtifactError:
                if folder.is_dir():
                    raise

    @staticmethod
    def _write(folder: Path, documents: dict[str, bytes]) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise translate(str(folder), error) from error
        for name, data in documents.items():
            write_atomic(folder / name, data)


def distinct(records: Sequence[ArtifactRecord]) -> list[ArtifactRecord]:
    """Each path once, as the ledger wants it.  What was copied keeps its path; of what was left out an agent can make many look alike: a
    name that is not UTF-8, and another that is what we show of it."""
    taken = {record.path for record in records if record.sha256}
    found = list[ArtifactRecord]()
    for record in records:
        path, number = record.path, 1
        while not record.sha256 and path in taken:
            number += 1
            path = f"{record.path} ({number})"
        taken.add(path)
        found.append(replace(record, path=path))
    return found


def written_by(folder: Path) -> str | None:
    """Id of the ledger whose documents lie in a campaign's folder; None: none do.

    :raises ArtifactError: ``io``: it cannot be seen.
    """
    try:
        return str(json.loads((folder / "config.json").read_bytes())["marathond"]["ledger"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    except OSError as error:
        raise translate(str(folder), error) from error


def _remove(root: Path, checkpoint: Callable[[], None] = lambda: None) -> None:
    """The run directory after its export.  What cannot be removed stays, is named in the log, and costs disk only."""
    try:
        remove_tree(root, checkpoint)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("run_dir_not_removed", trial=root.name, error=str(error))
