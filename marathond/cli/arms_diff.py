"""``marathonctl arms diff``: what two arms differ in, by their rows, by what these declare, and in truth (fault a14).

Owns the three looks and their layout: the rows; the reviewed records that ship with the package; the first requests that trials of this
campaign have sent, as the gateway saw them.  The rules are core/contract.py and core/contract_rules.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NotRequired

from typing_extensions import TypedDict

from marathond.agents.codex import contract, declares
from marathond.cli.arms import Gathered, row, surface_of, words
from marathond.cli.output import print_json, say, screen, wrapped
from marathond.core.contract import ABSENT, Declared, Difference, Path, differences, undelivered
from marathond.core.contract_rules import Asked, contracts_differ
from marathond.core.model import Arm
from marathond.core.text import clean, plural

VALUE_MAX = 400
OF_RECORDS = ("codex.drive", "codex.loopx", "codex.loopx.profile")
"""Fields by which one record is told from another."""
INSIDE = "functions.exec/"
"""Tools are called from inside another one in the surface ``code``."""
ALARMS = ("  UNDECLARED", "  MISSING")


@dataclass(frozen=True, slots=True)
class Found:
    """``declared``: by the differing fields.  ``surface`` None: not both arms are codex's, and only rows are compared.

    ``record``: differences of the reviewed records; ``missing``: what is declared and does not differ there.  ``seen``: trials of each that
    have asked; ``strange``: what these say that no row declares.
    """

    a: str
    b: str
    rows: tuple[Difference, ...]
    declared: tuple[Declared, ...] = ()
    surface: contract.Surface | None = None
    files: tuple[str, str] = ("", "")
    record: tuple[Difference, ...] = ()
    missing: tuple[Declared, ...] = ()
    seen: tuple[int, int] = (0, 0)
    strange: tuple[str, ...] = ()

    def field(self, difference: Difference) -> str:
        """The field that declares it; empty: none."""
        return next((each.field for each in self.declared if each.covers(difference.path)), "")


def compare(gathered: Gathered, a: str, b: str, surface: str | None) -> Found:
    """:raises CallFailed: there is no such arm."""
    left, right = gathered.arm(a).arm, gathered.arm(b).arm
    rows = tuple(_shown_rows(left, right))
    if left.codex is None or right.codex is None:
        return Found(a, b, rows)
    declared = declares.declared(left, right)
    chosen = surface_of(left, surface)
    names = contract.name_of(left.codex), contract.name_of(right.codex)
    made_a, made_b = (contract.reviewed(name, chosen) for name in names)
    # The records are of rows with all other fields alike: of what the rows differ in besides, they cannot tell.
    told = tuple(each for each in declared if each.field in OF_RECORDS)
    asked = [Asked(one.trial_id, one.arm, one.task, one.shape) for one in gathered.asked if one.arm in (a, b)]
    return Found(
        a,
        b,
        rows,
        declared,
        chosen,
        (contract.file_of(names[0], chosen).name, contract.file_of(names[1], chosen).name),
        tuple(differences(made_a, made_b)),
        tuple(undelivered(made_a, made_b, told)),
        (sum(one.arm == a for one in asked), sum(one.arm == b for one in asked)),
        tuple(each.detail for each in contracts_differ(asked, {(a, b): declared, (b, a): declared})),
    )


def _shown_rows(a: Arm, b: Arm) -> Iterator[Difference]:
    """Row differences without what a screen must not show; a secret that differs is still told as different."""
    shown_a, shown_b = contract_row(a), contract_row(b)
    for each in declares.row_differences(a, b):
        yield Difference(each.path, _below(shown_a, each.path), _below(shown_b, each.path))


def contract_row(arm: Arm) -> dict[str, Any]:
    shown = row(arm)
    codex = shown.pop("codex", None) or {}
    return {**shown, **{f"codex.{key}": value for key, value in codex.items()}}


def _below(values: Any, path: Sequence[str]) -> Any:
    for key in path:
        values = values.get(key, ABSENT) if isinstance(values, dict) else values
    return values


def wrong(found: Found) -> bool:
    """Something differs that no row declares, or does not that one does."""
    return bool(found.missing or found.strange or any(not found.field(each) for each in found.record))


def show(found: Found, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(found))
        return
    where = screen()
    for section in (_rows(found), _declared(found), _record(found), _seen(found)):
        for line in section:
            # Verdicts are never cut; what is declared may be, for --json has all of it.
            for part in wrapped(line, where) if not line.startswith("  ") or line.startswith(ALARMS) else [where.fit(line)]:
                say(part)


def _rows(found: Found) -> Iterator[str]:
    a, b = clean(found.a), clean(found.b)
    yield f"the rows of {a} and {b}" + ("" if found.rows else " are the same but for their names")
    for each in found.rows:
        yield f"  {clean(each.where)}: {a} {_value(each.a)}, {b} {_value(each.b)}"


def _declared(found: Found) -> Iterator[str]:
    if found.surface is None:
        yield ""
        yield "not both drive codex: there is no record of a first request to compare"
        return
    yield ""
    yield "what that declares in a first request and in config.toml"
    for field in dict.fromkeys(declares.field_of(each.path) for each in found.rows):
        given = [each for each in found.declared if each.field == field]
        paths = [_place(each.paths, found.surface) for each in given if each.paths]
        none = "it is not known what" if given else "nothing that reaches codex"
        yield f"  {clean(field)}" + ("" if paths else f": {none}")
        yield from (f"    {clean('.'.join(path))}" for path in paths)


def _place(paths: Sequence[Path], surface: contract.Surface) -> Path:
    """Of a tool where it lies in that surface, else the first: others only follow from it."""
    inside = [path for path in paths if path[:1] == ("tools",) and path[-1].startswith(INSIDE)]
    return inside[0] if inside and surface == "code" else paths[0]


def _record(found: Found) -> Iterator[str]:
    if found.surface is None:
        return
    yield ""
    if found.files[0] == found.files[1]:
        yield f"the reviewed records: both arms are driven alike, and have one ({found.files[0]})"
        return
    strange = [each for each in found.record if not found.field(each)]
    yield (
        f"the reviewed records ({found.files[0]}, {found.files[1]}): {plural(len(found.record), 'difference')}, "
        f"{len(strange) or 'none'} undeclared"
    )
    for each in found.record:
        field = found.field(each)
        yield f"  {clean(field) if field else 'UNDECLARED'}  {clean(each.words(found.a, found.b), VALUE_MAX)}"
    for missed in found.missing:
        yield f"  MISSING  {clean(missed.field)} declares {clean('.'.join(missed.paths[0]))}: both are alike in it"


def _seen(found: Found) -> Iterator[str]:
    if found.surface is None:
        return
    yield ""
    seen = ", ".join(f"{plural(count, 'trial')} of {clean(name)}" for name, count in zip((found.a, found.b), found.seen, strict=True))
    yield f"first requests that the gateway saw in this campaign: {seen}" + (
        "" if found.strange or not all(found.seen) else "; as declared"
    )
    for each in found.strange:
        yield f"  UNDECLARED  {clean(each, 2000)}"


def _value(value: Any) -> str:
    return "absent" if value is ABSENT else clean(words(value), VALUE_MAX)


class DifferenceShown(TypedDict):
    """``path``: where, from the outermost key on.  ``a``, ``b``: the value of each arm; left out where it has nothing there."""

    path: list[str]
    a: NotRequired[Any]
    b: NotRequired[Any]


class RecordDifference(DifferenceShown):
    """``declared_by``: the field of the rows that declares it; null: none."""

    declared_by: str | None


@dataclass(frozen=True, slots=True)
class RecordShown:
    """Differences of the reviewed records.

    :param surface: how the model is offered its tools.
    :param files: names of the two records.
    :param missing: what is declared, and does not differ there.
    """

    surface: contract.Surface
    files: tuple[str, str]
    differences: list[RecordDifference]
    missing: tuple[Declared, ...]


@dataclass(frozen=True, slots=True)
class SeenShown:
    """First requests that trials of this campaign have sent.

    :param trials: of each arm, how many have asked.
    :param undeclared: what these say that no row declares.
    """

    trials: dict[str, int]
    undeclared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """What two arms differ in.

    :param rows: by their rows.
    :param declared: what that declares, by field; null, like all that follows: not both drive codex.
    """

    a: str
    b: str
    rows: list[DifferenceShown]
    declared: tuple[Declared, ...] | None = None
    record: RecordShown | None = None
    seen: SeenShown | None = None


def _as_json(found: Found) -> Shown:
    rows = [_difference(each) for each in found.rows]
    if found.surface is None:
        return Shown(found.a, found.b, rows)
    differences: list[RecordDifference] = [{**_difference(each), "declared_by": found.field(each) or None} for each in found.record]
    record = RecordShown(found.surface, found.files, differences, found.missing)
    seen = SeenShown(dict(zip((found.a, found.b), found.seen, strict=True)), found.strange)
    return Shown(found.a, found.b, rows, found.declared, record, seen)


def _difference(each: Difference) -> DifferenceShown:
    shown = DifferenceShown(path=list(each.path))
    if each.a is not ABSENT:
        shown["a"] = each.a
    if each.b is not ABSENT:
        shown["b"] = each.b
    return shown
