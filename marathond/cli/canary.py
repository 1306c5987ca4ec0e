"""``marathonctl canary``: all arms through a spent budget, on one task, before it costs a night.

Owns what must have happened: the same deadline fired for every arm, for the same reason, and all were graded alike (faults a04, c10, c15).
With ``--provider practice`` the model is a script that works for ever; with ``real`` it is the configured provider, under a cap of money.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anyio.from_thread import start_blocking_portal

from marathond.cli.output import Column, Screen, print_json, say, screen, table
from marathond.cli.rehearse import ran
from marathond.core.names import AgentKind
from marathond.core.text import clean, plural, span
from marathond.gateway.config import CREDENTIALS_ENV
from marathond.practice.script import Practice, parse
from marathond.practice.server import practising
from marathond.service.exits import CallFailed, Exit
from marathond.service.knobs import did_you_mean
from marathond.service.rehearsal import Ground
from marathond.service.settings import Settings
from marathond.service.taskpaths import task_folders

Provider = Literal["practice", "real"]
DEADLINE_S = {"practice": 25.0, "real": 300.0}
SLACK_S = 30.0
"""How much later than its deadline an agent may be seen dead on a busy host."""
ENDLESS = """
[[script]]
then = "repeat"
[[script.step]]
say = "Another look."
run = "sleep 1; date"
"""
SPENT = frozenset({"deadline", "money"})
_TRIALS = """
SELECT c.arm, a.kind, c.park_code, c.park_detail, t.trial, t.state, t.ended_by, t.limit_s, t.limit_origin, t.agent_s, t.credit_s,
    t.reward, t.reward_source, v.code, v.reason,
    (SELECT count(*) FROM verification AS r WHERE printf('t%04d', r.trial_id) = t.trial) AS rounds,
    (SELECT coalesce(sum(u.requests), 0) FROM model_usage AS u
     WHERE printf('t%04d', u.trial_id) = t.trial AND u.account <> 'gate') AS requests,
    (SELECT sum(u.cost_usd) FROM v_usage AS u WHERE u.trial = t.trial) AS cost_usd
FROM v_cell AS c
JOIN arm AS a ON a.name = c.arm
LEFT JOIN v_trial AS t ON t.cell = c.cell
LEFT JOIN void AS v ON t.trial = printf('t%04d', v.trial_id) AND v.undone_at_ms IS NULL
ORDER BY a.position"""


@dataclass(frozen=True, slots=True)
class Bird:
    """One arm's trial.  ``verdict``: ``ok``, ``wrong`` or ``unknown``; ``why``: in words, empty when ok."""

    arm: str
    trial: str
    ended_by: str
    limit: str
    ran_s: float | None
    state: str
    reward_source: str
    requests: int
    cost_usd: float | None
    verdict: str
    why: str


@dataclass(frozen=True, slots=True)
class Shown:
    """:param deadline_s: of each agent, in seconds."""

    task: str
    provider: Provider
    deadline_s: float
    arms: tuple[Bird, ...]


def run(
    settings: Settings, *, task: str | None, provider: Provider, max_usd: float | None, deadline_s: float | None, keep: bool, as_json: bool
) -> int:
    """Fly it and print the table; the exit code: 1 something is wrong, 4 it cannot be told.

    :raises CallFailed: wrong options, or interrupted.  :raises MarathonError: as for a daemon; a cap of money needs a price.
    """
    arms = [arm.name for arm in settings.arm_models() if arm.kind is AgentKind.CODEX]
    if not arms:
        raise CallFailed("no arm of the campaign drives a model: there is no budget to spend", Exit.USAGE)
    if (provider == "real") != (max_usd is not None):
        wanted = "--provider real needs --max-usd N" if provider == "real" else "--max-usd belongs to --provider real"
        raise CallFailed(f"{wanted}: the practice provider costs nothing, the real one must not cost more", Exit.USAGE)
    names = [folder.name for folder in task_folders(settings)]
    chosen = task or names[0]
    if chosen not in names:
        raise CallFailed(f"--task {chosen}: no such task in campaign {settings.campaign.name}{did_you_mean(chosen, names)}", Exit.USAGE)
    limit_s = deadline_s or DEADLINE_S[provider]
    overrides: dict[str, object] = {"campaign.include": [chosen], "campaign.arms": arms, "limits.agent_timeout_s": limit_s}
    url: str | None = None
    with contextlib.ExitStack() as stack:
        if provider == "practice":
            url = stack.enter_context(_practice(parse(ENDLESS)))
        else:
            assert max_usd is not None
            _need_key(settings)
            overrides |= {"money.campaign_cap_usd": max_usd, "money.trial_cap_usd": max_usd / len(arms)}
        birds = ran(settings, "canary", overrides, read, provider=url, gates_only=False, keep=keep)
    if as_json:
        print_json(Shown(chosen, provider, limit_s, birds))
    else:
        show(birds, chosen, screen())
        if provider == "practice":
            say("a script answered and nothing was paid: costs are what its tokens would be at your prices")
    if any(bird.verdict == "wrong" for bird in birds):
        return Exit.FAILED
    return Exit.BLIND if any(bird.verdict == "unknown" for bird in birds) else Exit.OK


@contextlib.contextmanager
def _practice(script: Practice) -> Iterator[str]:
    """A practice provider in a thread of its own; its base URL."""
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(practising(script)) as server:
        yield f"{server.url}/v1"


def _need_key(settings: Settings) -> None:
    """The real provider wants the real key, which a unit's credential shows to that unit alone.  Raises CallFailed."""
    for name, route in settings.gateway.routes.items():
        if route.key_credential is not None and CREDENTIALS_ENV not in os.environ:
            unit = f"systemd-run -P -p LoadCredential={route.key_credential}:FILE marathonctl canary …, with the gateway unit's FILE"
            raise CallFailed(f"the key of route {name} is a credential of the gateway's unit: {unit}", Exit.USAGE)


def read(ground: Ground) -> tuple[Bird, ...]:
    """From the rehearsal's ledger."""
    return judge(ground.rows(_TRIALS))


def judge(rows: Sequence[dict[str, Any]]) -> tuple[Bird, ...]:
    """Each arm by itself, then against the first that is well: what differs between arms is what a canary is for.  Pure."""
    birds: list[Bird] = []
    like: dict[str, Any] | None = None
    for row in rows:
        verdict, why = _alone(row)
        if verdict == "ok":
            like = like or row
            if difference := _unlike(like, row):
                verdict, why = "wrong", difference
        limit = "" if row["limit_s"] is None else f"{row['limit_s']:g} s: {row['limit_origin']}"
        birds.append(
            Bird(
                arm=row["arm"],
                trial=row["trial"] or "",
                ended_by=row["ended_by"] or "",
                limit=limit,
                ran_s=row["agent_s"],
                state=row["state"] or "",
                reward_source=row["reward_source"] or "",
                requests=row["requests"] or 0,
                cost_usd=row["cost_usd"],
                verdict=verdict,
                why=why,
            )
        )
    return tuple(birds)


def _alone(row: dict[str, Any]) -> tuple[str, str]:
    if row["trial"] is None:
        return "wrong", f"never begun: {row['park_code'] or 'not admitted'}: {row['park_detail'] or ''}"
    if row["code"] is not None:
        return "wrong", f"void: {row['code']}: {row['reason']}"
    if row["ended_by"] not in SPENT:
        return "unknown", f"ended by {row['ended_by']} before its budget was spent: give a longer task or a shorter --deadline"
    if row["ended_by"] == "deadline" and not row["limit_s"] <= row["agent_s"] <= row["limit_s"] + (row["credit_s"] or 0) + SLACK_S:
        return "wrong", f"ran {row['agent_s']:g} s under a deadline of {row['limit_s']:g} s"
    if not row["requests"]:
        return "wrong", "its model was never asked"
    if row["state"] == "review":
        return "unknown", "its grading is for review: the task's verifier gave no score"
    return ("ok", "") if row["state"] == "scored" else ("wrong", f"{row['state']} instead of scored")


def _unlike(like: dict[str, Any], row: dict[str, Any]) -> str:
    """What differs in how two arms were ended and graded."""
    for key, words in (
        ("limit_origin", "deadline from"),
        ("limit_s", "deadline of"),
        ("reward_source", "reward from"),
        ("rounds", "graded in rounds:"),
    ):
        if like[key] != row[key]:
            return f"{words} {row[key]}, {like['arm']}: {like[key]}"
    return ""


def show(birds: Sequence[Bird], task: str, where: Screen) -> None:
    """One line per arm."""
    columns = (
        Column("arm"), Column("ended by"), Column("deadline", least=10), Column("ran", right=True), Column("graded"),
        Column("asked", right=True), Column("cost", right=True), Column("", least=10),
    )  # fmt: skip
    rows = [_row(bird) for bird in birds]
    for line in table(columns, rows, where):
        say(line)
    for bird in birds:
        if bird.why:
            say(f"{clean(bird.arm)}: {clean(bird.why, 1000)}")
    good = sum(bird.verdict == "ok" for bird in birds)
    say(f"{task}: {good} of {plural(len(birds), 'arm')} spent their budget and were graded alike")


def _row(bird: Bird) -> tuple[str, ...]:
    ran = "-" if bird.ran_s is None else span(bird.ran_s * 1000)
    cost = "-" if bird.cost_usd is None else f"${bird.cost_usd:.2f}"
    graded = f"{bird.state} {bird.reward_source}".strip() or "-"
    return (clean(bird.arm), bird.ended_by or "-", bird.limit or "-", ran, graded, str(bird.requests), cost, bird.verdict)
