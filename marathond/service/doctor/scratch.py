"""A scratch ledger: made by the real migrations, driven by the real verbs, filled with whatever a test of a watcher needs.

Owns the way of a planted trial through every verb and trigger of the schema, and a campaign that is plausible and clean.  Nothing here is
ever the ledger of a campaign, see :mod:`~marathond.service.doctor.ground`.  Must not know the rules that are tried on it.

Whoever plants calls :meth:`Scratch.trial` for each trial that the fault needs, and :attr:`Scratch.c` with the ledger's verbs for the rest.
A plant that needs an ordinary campaign around it calls :meth:`Scratch.clean` before, for the part that it does not fill itself.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from marathond.core.names import trial_label
from marathond.ledger.verbs import admission, agentlog, artifacts, networks, operator, sql, trials, usage
from marathond.ledger.verbs.artifacts import ArtifactRecord
from marathond.ledger.verbs.trials import Fact, ScoreRow
from marathond.service.doctor import planted
from marathond.service.doctor.ground import AUTHOR, BEGAN_MS, CAMPAIGN, ENGINE, HOUR_MS, MINUTE_MS, PRICES, Ground
from marathond.service.doctor.planted import ARMS, LIMIT_MS, REPLICATES, TASKS, Told, Usage

_FOR_EVER = 10**6
"""Passes of a cell: a planted void never parks one."""
_STATES = ("reserved", "preparing", "running", "verifying", "scored", "review", "voided")


class Auto(Enum):
    """What is not said is what an ordinary trial of that arm has."""

    AUTO = 0


AUTO = Auto.AUTO


class Scratch(Ground):
    """A ledger with one campaign: arms :data:`~planted.ARMS`, tasks :data:`~planted.TASKS`, 5 replicates, nothing admitted yet."""

    # ── one trial ──

    def trial(
        self,
        *,
        task: str | None = None,
        arm: str | None = None,
        replicate: int | None = None,
        state: str = "scored",
        reward: float | None = None,
        partial: float | None = None,
        tests: tuple[int, int] | None = None,
        test_rate: float | None = None,
        flags: Sequence[str] = (),
        parts: Sequence[tuple[str, str, str]] = (),
        ended_by: str = "agent",
        agent_ms: int | None = None,
        limit_ms: int | None = LIMIT_MS,
        credit_ms: int = 0,
        overrun_ms: int | None = None,
        exit_code: int | None = None,
        oom_killed: bool = False,
        void_code: str | None = None,
        void_from: str | None = None,
        review_code: str = "unreadable",
        review_evidence: Mapping[str, object] | None = None,
        receipt: Told | Auto | None = AUTO,
        usage: Usage | Auto | None = AUTO,
        more_usage: Sequence[Usage] = (),
        outcomes: Sequence[str] = ("exited",),
        image_id: str | None = None,
        context_digest: str | None = None,
        created_at_ms: int | None = None,
        rested_at_ms: int | None = None,
        export: Mapping[str, bytes] | Auto | None = AUTO,
        log: Sequence[tuple[str, Mapping[str, object]]] = (),
        facts: Sequence[Fact] = (),
        leaked: bool = False,
    ) -> int:
        """A new trial, brought into ``state`` by the verbs in their order; its id.  A resting one is torn down and exported.

        :param task, arm, replicate: which cell; None: the first open one in the planned order that fits.
        :param state: one of ``reserved, preparing, running, verifying, scored, review, voided``.
        :param reward, partial, tests, test_rate, flags: of the score; None: ordinary ones for the cell, the same whenever asked.
        :param ended_by: a value of EndedBy; one that is the deadline's lasts for ``limit_ms``.
        :param void_code: of a ``voided`` one; default ``container_failed`` (the daemon's) before the agent, ``engine_failed`` later.
            One of a person's (``operator``, ``provider``, ``stop_now``) is given by a person.
        :param void_from: the state in which it was voided: default ``reserved``; for a person's code ``scored``.
        :param receipt: None: none was made.  By default arms that ask a model have one once their agent ended.
        :param usage: of the agent's account; None: it asked nothing.  ``more_usage``: of other accounts or answers.
        :param outcomes: of the verifier's rounds: ``exited``, ``deadline``, ``lost``; a further round follows a ``verify_again``.
        :param created_at_ms, rested_at_ms: by the wall; by default trials follow each other, the last one a while before now.
        :param export: path below the trial's folder to bytes; None: nothing was exported.
        :param log: the agent's own log: (kind, detail).
        :param leaked: its network could not be removed, so that its lease is held.
        :raises ValueError: no such open cell, or a state that there is not.  The schema refuses the rest.
        """
        if state not in _STATES:
            raise ValueError(f"state {state!r}: must be one of {', '.join(_STATES)}")
        cell_id, task, arm, replicate = self._cell(task, arm, replicate)
        draw = random.Random(f"{task}/{arm}/{replicate}")
        by_person = void_code in ("operator", "provider", "stop_now")
        reached = (void_from or ("scored" if by_person else "reserved")) if state == "voided" else state
        if agent_ms is None:
            agent_ms = limit_ms if limit_ms and ended_by in ("deadline", "timer") else draw.randint(8 * MINUTE_MS, 20 * MINUTE_MS)
        spends = _spends(reached, agent_ms)
        at = self._begin_at(created_at_ms, rested_at_ms, spends)
        made = admission.admit(
            self.c,
            cell_id=cell_id,
            token=f"token-{next(self._numbers)}",
            engine=ENGINE,
            subnet=_subnet(next(self._numbers)),
            needs_network=True,
            ledger_id=self.ledger_id,
            now_ms=at,
        )
        trial_id, end_at = made.trial_id, at + spends if rested_at_ms is None else rested_at_ms
        trials.facts(self.c, trial_id, facts or planted.facts_of(arm), now_ms=at)
        depth = _STATES.index("scored" if reached == "review" else reached)
        if depth >= 1:
            assert made.lease_id is not None
            networks.network_created(self.c, made.lease_id, network_id=f"net-{trial_id}")
            trials.container_intended(
                self.c,
                trial_id,
                engine=ENGINE,
                name=made.container_name,
                image_id=image_id or planted.image_of(task),
                context_digest=context_digest or planted.context_of(task),
                now_ms=at,
            )
            trials.container_created(self.c, trial_id, docker_id=f"id-{trial_id}")
            trials.environment_up(self.c, trial_id, started_at="2026-09-21T14:13:21.5Z", detail={}, now_ms=at + 5_000)
        started, ended = at + 10_000, at + 10_000 + agent_ms
        if depth >= 2:
            trials.agent_started(
                self.c,
                trial_id,
                exec_id=f"exec-{trial_id}",
                started_mono_ms=started + self._mono_ms,
                boot_id="scratch",
                limit_ms=limit_ms,
                limit_origin="task 3600 x 1.0",
                limit_loser="",
                now_ms=started,
            )
            asked = (Usage() if planted.asks_model(arm) else None) if usage is AUTO else usage
            for number, (kind, detail) in enumerate(log):
                agentlog.append(
                    self.c, trial_id, kind=kind, detail=detail, mono_ms=started + self._mono_ms + number, now_ms=started + number
                )
            running = reached == "running"
            for each in [*([] if asked is None else [asked]), *more_usage]:
                self.ask(trial_id, each, from_ms=started, until_ms=self.now_ms - 5_000 if running else ended)
        if depth >= 3:
            trials.agent_ended(
                self.c,
                trial_id,
                ended_by=ended_by,
                exit_code=(0 if ended_by == "agent" else 137) if exit_code is None else exit_code,
                exit_source="exec",
                oom_killed=oom_killed,
                overrun_ms=overrun_ms,
                processes=[],
                ended_mono_ms=ended + self._mono_ms,
                now_ms=ended,
                credit_ms=credit_ms,
            )
            told = (Told() if planted.asks_model(arm) else None) if receipt is AUTO else receipt
            if told is not None:
                label = trial_label(trial_id)
                about = planted.About(label, CAMPAIGN, task, arm, replicate, made.attempt, started, ended, ended_by, asked)
                schema, data = planted.receipt(about, told)
                agentlog.keep_receipt(self.c, trial_id, schema=schema, data=data, now_ms=ended)
            self._verify(trial_id, outcomes, at_ms=ended, open_last=reached == "verifying")
        if reached == "scored":
            score = _score(draw, arm, reward, partial, tests, test_rate, flags, parts)
            trials.scored(self.c, trial_id, score, now_ms=end_at)
        elif reached == "review":
            evidence = {"seen": []} if review_evidence is None else review_evidence
            trials.doubted(self.c, trial_id, code=review_code, detail="no reward that could be read", evidence=evidence, now_ms=end_at)
        if state == "voided":
            code = void_code or ("container_failed" if depth < 2 else "engine_failed")
            self._void(trial_id, code, by_person=by_person, at_ms=end_at)
        if state in ("scored", "review", "voided"):
            self._let_go(made, depth, leaked=leaked, at_ms=end_at)
            files = _ordinary(trial_id, task, arm) if export is AUTO else export
            if files is not None:
                self.export(trial_id, f"{CAMPAIGN}/{trial_label(trial_id)}", files, at_ms=min(end_at + 1_000, self.now_ms))
        return trial_id

    def _cell(self, task: str | None, arm: str | None, replicate: int | None) -> tuple[int, str, str, int]:
        row = self.c.execute(
            """SELECT cell_id, task.name, arm.name, replicate FROM cell_state AS s JOIN task USING (task_id) JOIN arm USING (arm_id)
               WHERE s.campaign_id = ?4 AND state = 'open' AND (?1 IS NULL OR task.name = ?1) AND (?2 IS NULL OR arm.name = ?2)
                   AND (?3 IS NULL OR replicate = ?3)
               ORDER BY ordinal LIMIT 1""",
            (task, arm, replicate, self.campaign_id),
        ).fetchone()
        if row is None:
            raise ValueError(f"no open cell of task {task or 'any'}, arm {arm or 'any'}, replicate {replicate or 'any'}")
        return int(row[0]), str(row[1]), str(row[2]), int(row[3])

    def _begin_at(self, created_at_ms: int | None, rested_at_ms: int | None, spends: int) -> int:
        if created_at_ms is not None:
            return created_at_ms
        if rested_at_ms is not None:
            return rested_at_ms - spends
        self._begun += 1
        slot = self.now_ms - BEGAN_MS + HOUR_MS + self._begun * 4 * MINUTE_MS
        return min(slot, self.now_ms - spends - MINUTE_MS)

    @property
    def _mono_ms(self) -> int:
        return 10**9 - self.now_ms

    def ask(self, trial_id: int, asked: Usage, *, from_ms: int, until_ms: int) -> None:
        """Requests of the trial's account, taken in from the gateway's journal as the daemon does."""
        row = usage.journal(self.c)
        assert row is not None
        events = list(planted.requests(asked, trial_id, row.last_seq + 1, from_ms=from_ms, until_ms=until_ms, mono_ms=self._mono_ms))
        taken = usage.ingest(
            self.c,
            events,
            segment=1,
            byte=row.byte + 300 * len(events),
            last_seq=row.last_seq + len(events),
            prices=PRICES,
            campaign_id=self.campaign_id,
            now_ms=until_ms,
        )
        if taken.refused or taken.foreign:
            raise ValueError(f"planted requests of {trial_label(trial_id)} were not taken in: {taken.refused or taken.foreign}")

    def _verify(self, trial_id: int, outcomes: Sequence[str], *, at_ms: int, open_last: bool) -> None:
        for number, outcome in enumerate(outcomes, start=1):
            began = at_ms + 2_000 * number
            if number > 1:
                cause = {"deadline": "deadline", "lost": "interrupted"}.get(outcomes[number - 2], "unreadable")
                trials.verify_again(self.c, trial_id, cause=cause, now_ms=began - 1)
            trials.verification_started(
                self.c,
                trial_id,
                round=number,
                exec_id=f"verifier-{trial_id}-{number}",
                started_mono_ms=began + self._mono_ms,
                boot_id="scratch",
                limit_ms=600_000,
                limit_origin="task 600 x 1.0",
                now_ms=began,
            )
            if not (open_last and number == len(outcomes)):
                exit_code = 0 if outcome == "exited" else None
                trials.verification_ended(self.c, trial_id, number, outcome=outcome, exit_code=exit_code, now_ms=began + 1_500)

    def _void(self, trial_id: int, code: str, *, by_person: bool, at_ms: int) -> None:
        if by_person:
            operator.void_trials(self.c, [trial_id], code=code, reason="planted", author=AUTHOR, now_ms=at_ms)
        else:
            trials.void_by_daemon(
                self.c, trial_id, code=code, reason="planted", evidence={}, counts_pass=True, passes=_FOR_EVER, now_ms=at_ms
            )

    def _let_go(self, made: admission.Admitted, depth: int, *, leaked: bool, at_ms: int) -> None:
        if depth >= 1:
            trials.container_gone(self.c, made.trial_id, now_ms=at_ms)
        assert made.lease_id is not None
        if leaked:
            networks.removal_failed(self.c, made.lease_id, now_ms=at_ms)
        else:
            networks.release_lease(self.c, made.lease_id, because="seen_gone" if depth >= 1 else "never_created", now_ms=at_ms)
        trials.release_claim(self.c, made.trial_id, now_ms=at_ms)

    def export(self, trial_id: int, folder: str, files: Mapping[str, bytes], *, at_ms: int) -> None:
        """The ledger's word of files below out_dir/``folder``, and the files, where this scratch has them."""
        records = []
        for path, data in files.items():
            if self.files:
                target = self.out_dir / folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            records.append(ArtifactRecord(path, hashlib.sha256(data).hexdigest(), len(data)))
        artifacts.exported(self.c, trial_id, folder=folder, records=records, now_ms=at_ms)

    # ── a whole campaign, and its neighbourhood ──

    def clean(
        self,
        *,
        tasks: Collection[str] = TASKS,
        arms: Collection[str] = ARMS,
        replicates: Collection[int] | None = None,
        voids: bool = True,
    ) -> None:
        """Fill those cells as an honest campaign would be: no rule of severity warning, error or stop-loss has anything to say.

        All arms alike in times, tokens and endings, rewards that differ, one void of infrastructure per arm (``voids``).
        """
        last = int(sql.scalar(self.c, "SELECT max(replicate) FROM cell WHERE campaign_id = ?", (self.campaign_id,)))
        for replicate in range(1, last + 1) if replicates is None else sorted(replicates):
            for row, task in enumerate(TASKS):
                for column, arm in enumerate(ARMS):
                    if task not in tasks or arm not in arms:
                        continue
                    if voids and replicate == 1 and row == column:
                        self.trial(task=task, arm=arm, replicate=replicate, state="voided")
                    spent = arm != "oracle" and (row * REPLICATES + replicate) % 7 == 0
                    self.trial(task=task, arm=arm, replicate=replicate, ended_by="deadline" if spent else "agent")


def _subnet(number: int) -> str:
    number %= 4096
    return f"198.19.{number // 16}.{number % 16 * 16}/28"


def _spends(reached: str, agent_ms: int) -> int:
    """How long a trial that gets so far has lasted by then."""
    return {"reserved": 1_000, "preparing": 5_000, "running": 10_000 + agent_ms}.get(reached, 10_000 + agent_ms + 15_000)


def _score(
    draw: random.Random,
    arm: str,
    reward: float | None,
    partial: float | None,
    tests: tuple[int, int] | None,
    test_rate: float | None,
    flags: Sequence[str],
    parts: Sequence[tuple[str, str, str]],
) -> ScoreRow:
    solved = 1.0 if arm == "oracle" or draw.random() < 0.4 else 0.0
    reward = solved if reward is None else reward
    passed, total = tests if tests is not None else (40, 40) if reward == 1.0 else (draw.randint(5, 35), 40)
    partial = passed / total if partial is None else partial
    rate = passed / total if test_rate is None else test_rate
    shown = list(parts) or [("partial", repr(partial), "metrics.json:partial_score")]
    return ScoreRow(1, reward, "reward.txt", partial, passed, total, tuple(flags), shown, rate)


def _ordinary(trial_id: int, task: str, arm: str) -> dict[str, bytes]:
    """No two trials' verifiers say the same."""
    return {"verifier/test-stdout.txt": f"{task}: trial {trial_id} of {arm}\n".encode(), "verifier/reward.txt": b"1\n"}
