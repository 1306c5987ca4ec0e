"""``marathonctl prune``: what is old makes room; rows of the ledger never do.

Owns which things are looked at and in which order.  What may go is core/keeping.py's, the acts are :mod:`marathond.service.keeping`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from marathond.cli.archive import asking, chosen, finish, identity, looking, nobody, tell
from marathond.core.keeping import Kind
from marathond.service import keeping
from marathond.service.keeping import Ask, Done, Look, Wanted, one_at_a_time

if TYPE_CHECKING:
    from marathond.core.paths import DaemonPaths

WORDS = {"artifacts": Kind.ARTIFACTS, "run-dirs": Kind.RUN_DIR, "build-logs": Kind.BUILD_LOG, "backups": Kind.BACKUP}
"""As they are typed."""


def run(
    paths: DaemonPaths,
    wanted: Wanted,
    *,
    trials: Sequence[int],
    campaign: str | None,
    task: str | None,
    arm: str | None,
    as_json: bool,
) -> int:
    """:return: exit status, 1 when something was refused."""
    look, done = looking(paths.ledger), list[Done]()
    # Before anything is decided: what is told of a trial that does not exist must not come after a removal.
    chosen(look, trials, campaign=campaign, task=task, arm=arm, every=True)
    with one_at_a_time(paths.state_dir), nobody() if wanted.dry_run else asking(paths, "marathonctl prune") as ask:
        for each in _all(paths, look, ask, wanted, trials, campaign, task, arm):
            tell(each, as_json=as_json, aloud=bool(trials))
            done.append(each)
    return finish(done, dry_run=wanted.dry_run, as_json=as_json, aloud=bool(trials))


def _all(
    paths: DaemonPaths,
    look: Look,
    ask: Ask,
    wanted: Wanted,
    trials: Sequence[int],
    campaign: str | None,
    task: str | None,
    arm: str | None,
) -> Iterator[Done]:
    ledger_id = identity(look)
    yield from keeping.finish_broken_off(look, ask, ledger_id, dry_run=wanted.dry_run)
    rows = chosen(look, trials, campaign=campaign, task=task, arm=arm, every=True)
    if Kind.ARTIFACTS in wanted.kinds:
        for row in rows:
            yield keeping.prune_trial(look, ask, row, wanted, ledger_id)
    if Kind.RUN_DIR in wanted.kinds:
        yield from keeping.prune_run_dirs(ask, paths.state_dir / "r", rows, wanted)
    if trials or campaign is not None or task is not None or arm is not None:
        return  # what belongs to no trial was not meant
    if Kind.BUILD_LOG in wanted.kinds:
        yield from keeping.prune_build_logs(look, ask, paths.state_dir / "builds", wanted)
    if Kind.BACKUP in wanted.kinds:
        yield from keeping.prune_backups(ask, paths.ledger, ledger_id, wanted)
