"""Which command prints what with ``--json``: by the types that it prints.

Owns the list and the frame of each published schema.  Types are named, and imported when their schema is asked for: a report's bring numpy.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONFIG, ERROR = "config", "error"
"""Two that are no command: the configuration file, and what a refused command leaves on stderr."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is printed in one case.  ``parts``: types below ``marathond``, printed as one object; ``many``: an array of such; ``when``: with
    which arguments."""

    parts: tuple[str, ...]
    many: bool = False
    when: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """``lines``: a stream, an object a line.  ``null_where_withheld``: names of fields that are kept back at times; then no float is sure,
    either."""

    cases: tuple[Case, ...]
    lines: bool = False
    null_where_withheld: str = ""


def _one(*parts: str, lines: bool = False) -> Form:
    return Form((Case(parts),), lines)


def _many(*parts: str) -> Form:
    return Form((Case(parts, many=True),))


_ARM = ("core.model:Arm", "cli.arms:Beside", "cli.arms:Source", "cli.arms:ToldOf")
_FINDING = ("ledger.verbs.findings:FindingRow", "cli.findings:Beside")

FORMS: Mapping[str, Form] = {
    "status": _one("cli.status:Verdict", "service.picture.status:Status"),
    "show": Form((Case(("ledger.verbs.show:TrialShown", "cli.show:Now")), Case(("cli.show_cell:CellsShown",), when="CELL|BLOCK"))),
    "logs": _one("cli.logs:LogLine", lines=True),
    "pool": _one("cli.pool:PoolReport"),
    "findings": Form((Case(_FINDING, many=True), Case((*_FINDING, "cli.findings:History"), when="NO"))),
    "sql": _many("cli.sql:Row"),
    "wait": _one("cli.wait:Waited"),
    "plan": _one("cli.plan:CampaignPlan"),
    "tail": _one("cli.happened:Line", lines=True),
    "history": _one("cli.happened:Line", lines=True),
    "diff": _one("core.unlike:Unlike"),
    "capacity": _one("service.picture.capacity:Capacity"),
    "explain": _many("cli.explain:Explained"),
    "doctor": _one("cli.doctor:Shown"),
    "audit": _one("cli.audit:Shown"),
    "void": Form((Case(("service.answers:VoidAnswer",)), Case(("service.answers:VoidPreview",), when="--dry-run"))),
    "unvoid": _one("service.answers:UnvoidAnswer"),
    "review": Form(
        (
            Case(("cli.reviews:Doubt", "cli.reviews:Age"), many=True),
            Case(("cli.reviews:CaseShown",), when="TRIAL"),
            Case(("service.answers:ReviewDecided",), when="TRIAL --accept|--void"),
        )
    ),
    "regrade": _one("cli.regrade:Shown"),
    "retry": _one("ledger.verbs.operator:RetryResult"),
    "unpark": _one("service.answers:Unparked"),
    "pause": _one("service.answers:Closed"),
    "resume": _one("service.answers:Reopened"),
    "drain": _one("service.answers:Drained"),
    "stop": _one("service.answers:Stopping"),
    "submit": _one("ledger.verbs.campaigns:SubmitResult"),
    "set": _one("service.answers:KnobTurned"),
    "ack": _one("service.answers:AckAnswer"),
    "notify": Form(
        (Case(("cli.notify:NoticeShown",), many=True), Case(("cli.notify:Channel", "service.channels:Answer"), many=True, when="--test"))
    ),
    "clean": Form((Case(("cli.clean:LedgersSeen",)), Case(("cli.clean:Orphan",), many=True, when="--ledger ID"))),
    "archive": _one("cli.archive:Kept"),
    "prune": _one("cli.archive:Kept"),
    "sizes": _one("cli.sizes:Sizes"),
    "init": _one("cli.house:Made"),
    "ledger adopt": _one("cli.house:AdoptedShown"),
    "ledger check": _one("cli.house:Checked"),
    "ledger backup": _one("cli.house:BackedUp"),
    "stage": _many("staging.store:StagedTree", "cli.stage:State"),
    "prebuild": _one("cli.prebuild:Shown"),
    "preflight": _one("cli.preflight:Shown"),
    "verify-envs": _one("cli.verify_envs:Shown"),
    "canary": _one("cli.canary:Shown"),
    "arms": _many(*_ARM),
    "arms show": _one(*_ARM, "cli.arms:Record"),
    "arms diff": _one("cli.arms_diff:Shown"),
    "disclosures": _one("cli.disclosures:Shown"),
    "report": Form(
        (Case(("report.tables:Whole",)), Case(("report.tables:Columns",), when="--columns")),
        null_where_withheld="report.tables:SUMS",
    ),
    "import": _one("cli.import_runs:Shown"),
    "config check": _one("cli.config_cmds:Checked"),
    "config show": _one("cli.config_cmds:Shown"),
    "schema": _many("cli.commands_schema:Listed"),
    ERROR: _one("cli.refusals:Failure"),
}

EXEMPT: Mapping[str, str] = {
    "exec": "what it prints is the command's in the container, byte for byte",
    "top": "a screen that stays; its facts are those of status --json, show --json and logs --json",
    "page": "it serves until it is ended; what it serves for programs is /metrics, /livez and /readyz",
}
"""Commands without ``--json``, and why."""


def names() -> tuple[str, ...]:
    """Of all schemas, as ``marathonctl schema`` takes them."""
    return (*FORMS, CONFIG)


def about(name: str) -> str:
    """In a few words."""
    if name == CONFIG:
        return "the configuration file"
    if name == ERROR:
        return "the last line on stderr of a command that is refused, with --json"
    form = FORMS[name]
    kinds = ["an array" if case.many else "an object a line" if form.lines else "an object" for case in form.cases]
    cases = [f"{kind}{f' with {case.when}' if case.when else ''}" for kind, case in zip(kinds, form.cases, strict=True)]
    return f"what marathonctl {name} prints: {'; '.join(cases)}"


def schema(name: str) -> dict[str, Any]:
    """The published schema.

    :raises KeyError: there is none of that name.
    """
    from marathond.cli import schema_make as make

    if name == CONFIG:
        from marathond.cli.schema_config import config_schema

        return config_schema()
    form = FORMS[name]
    parts = [[_type(each) for each in case.parts] for case in form.cases]
    made, defs = make.output_schema(parts, many=[case.many for case in form.cases])
    if form.null_where_withheld:
        kept = frozenset(_type(form.null_where_withheld))
        made, defs = make.with_nulls(made, kept), make.with_nulls(defs, kept)
    frame = {"$schema": make.DIALECT, "$id": f"urn:marathond:schema:{make.MAJOR}:{name.replace(' ', '-')}", "$comment": make.PROMISE}
    title = "a refused command's last line on stderr" if name == ERROR else f"marathonctl {name} --json"
    if form.lines:
        frame["title"] = f"{title}: one object a line"
    else:
        frame["title"] = title
    if len(made) == 1:
        whole = {**frame, **made[0]}
    else:
        cases = [{"title": f"marathonctl {name} {case.when}".strip(), **one} for case, one in zip(form.cases, made, strict=True)]
        whole = {**frame, "anyOf": cases}
    return {**whole, **({"$defs": defs} if defs else {})}


def _type(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(f"marathond.{module}"), attribute)
