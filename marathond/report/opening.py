"""How a report opens: what was compared, what is missing, what was withdrawn, open findings, disclosures.

Owns these sections.  Nothing in them ranks arms, so they are always printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from marathond.core.audit.catalogue import meaning_of
from marathond.core.results import CellResult, FindingResult, Results, VoidResult
from marathond.report.blocks import TEXT_MAX, Block, Col, Line, Section, Table, Tone, lines, num, prose, word
from marathond.report.numbers import fixed, instant, many, money, tally

SEVERITIES = ("stop_loss", "error", "warning", "info")
HASH_SHOWN = 16
CELLS_NAMED = 20
FACTS = (Col("what"), prose("value"))


def compared(results: Results) -> Section:
    """Which campaign, arms, tasks, and as of when."""
    facts: list[tuple[str, str]] = [
        ("campaign", word(results.campaign)),
        ("origin", "run by this ledger's daemon" if results.origin == "run" else "imported: measured elsewhere, read from files"),
        *(("read from", word(line, TEXT_MAX)) for line in results.imported),
        ("benchmark", "none named" if results.benchmark is None else word(results.benchmark)),
        ("treatment", word(results.treatment_hash)),
        ("cells", _cells(results)),
        ("as of", f"{instant(results.as_of_ms)}, the campaign's last event"),
        ("ledger", word(results.ledger_id)),
        ("contrasts", _declared(results)),
        ("money", _spent(results)),
    ]
    facts += [("mounted", word(f"{arm.name} at {line}", TEXT_MAX)) for arm in results.arms for line in arm.mounted]
    arms = tuple(
        (
            word(arm.name),
            word(arm.kind),
            "none" if arm.model is None else word(arm.model),
            word(arm.treatment_hash.removeprefix("sha256:")[:HASH_SHOWN]),
        )
        for arm in results.arms
    )
    columns = (prose("arm", 10), Col("kind", least=5), Col("model", least=10), Col("treatment", least=12))
    return Section("compared", "What was compared", (Table(FACTS, tuple(facts)), Table(columns, arms, "Arms, in the configured order")))


def _cells(results: Results) -> str:
    tasks, arms, replicates = len(results.tasks), len(results.arms), results.replicates
    shape = f"{many(tasks, 'task')} x {many(arms, 'arm')} x {many(replicates, 'replicate')}"
    whole = tasks * arms * replicates
    return (
        f"{shape} = {many(whole, 'cell')}" if whole == len(results.cells) else f"{shape}; {len(results.cells)} of these {whole} cells exist"
    )


def _declared(results: Results) -> str:
    """How many are declared, what was known by then, and what an earlier declaration held that is gone."""
    if not results.contrasts and not results.declaration:
        return "none declared"
    parts = [f"{len(results.contrasts)} declared"]
    if results.declaration > 1:
        parts.append(f"in version {results.declaration} of the declaration")
    if results.declared_after is not None:
        parts.append("before any score was known" if not results.declared_after else f"after {many(results.declared_after, 'score')}")
    if results.dropped:
        parts.append("dropped since: " + "; ".join(f"{word(each.a)} - {word(each.b)}" for each in results.dropped[:CELLS_NAMED]))
    return ", ".join(parts)


def _spent(results: Results) -> str:
    if not results.spent_usd and not results.voids_usd:
        return "not known"
    stands, voided = sum(results.spent_usd.values()), sum(results.voids_usd.values())
    text = f"{money(stands + voided)}, of it {money(voided)} on voided trials"
    unpriced = sum(results.unpriced.values())
    return f"{text}; {many(unpriced, 'trial')} without a price not counted" if unpriced else text


def missing(results: Results) -> Section:
    """What has no score yet and why, and what was withdrawn.  Counts by arm."""
    blocks: list[Block] = [_counts(results), *_undecided(results)]
    blocks += [*_voids(results), *_post_score(results)]
    by_person = [cell for cell in results.cells if cell.by_operator]
    if by_person:
        blocks.append(
            Line(f"{many(len(by_person), 'reward')} by a person's word (a review that was accepted): {_named(by_person)}", Tone.WARN)
        )
    return Section("missing", "What is missing, what was withdrawn", tuple(blocks))


def _counts(results: Results) -> Table:
    columns = (prose("arm", 10), *map(num, ("cells", "done", "open", "running", "parked", "review", "voids", "after score")))
    of: dict[str, Counter[str]] = {arm.name: Counter() for arm in results.arms}
    for cell in results.cells:
        of.setdefault(cell.arm, Counter()).update(("cells", cell.state))
    for void in results.voids:
        if void.standing:
            of.setdefault(void.arm, Counter()).update(("voids", *(("late",) if void.score_was_known else ())))
    keys = ("cells", "done", "open", "claimed", "parked", "review", "voids", "late")
    rows = [(word(arm), *(str(counts[key]) for key in keys)) for arm, counts in of.items()]
    total = sum(of.values(), Counter[str]())
    rows.append(("all arms", *(str(total[key]) for key in keys)))
    return Table(columns, tuple(rows), "Cells by state; standing voids, and those of them decided when the score was known")


def _undecided(results: Results) -> Iterable[Line]:
    for state, code_of in (("parked", _park), ("review", _review)):
        cells = [cell for cell in results.cells if cell.state == state]
        for code in sorted({code_of(cell) for cell in cells}):
            these = [cell for cell in cells if code_of(cell) == code]
            yield Line(f"{state}, {code}: {many(len(these), 'cell')}: {_named(these)}", Tone.WARN)


def _park(cell: CellResult) -> str:
    return word(cell.park_code or "no code")


def _review(cell: CellResult) -> str:
    return word(cell.review_code or "no code")


def _named(cells: Sequence[CellResult]) -> str:
    """``zstd-decoder plain r1 r2, …``: bounded."""
    of: dict[tuple[str, str], list[int]] = {}
    for cell in cells:
        of.setdefault((cell.task, cell.arm), []).append(cell.replicate)
    shown = [
        f"{word(task)} {word(arm)} {' '.join(f'r{n}' for n in sorted(which))}" for (task, arm), which in list(of.items())[:CELLS_NAMED]
    ]
    return ", ".join(shown) + (f" and {len(of) - CELLS_NAMED} more task-arm pairs" if len(of) > CELLS_NAMED else "")


def _voids(results: Results) -> Iterable[Block]:
    standing = [void for void in results.voids if void.standing]
    if not standing:
        yield Line("No trial is voided.")
    else:
        arms = [arm.name for arm in results.arms]
        codes = sorted({(void.side, void.code) for void in standing})
        count = Counter((void.arm, void.side, void.code) for void in standing)
        columns = (Col("code", least=14), Col("side", least=6), *(Col(word(arm), right=True, least=5) for arm in arms), num("all"))
        rows = tuple(
            (word(code), word(side), *(str(count[arm, side, code]) for arm in arms), str(sum(count[arm, side, code] for arm in arms)))
            for side, code in codes
        )
        yield Table(columns, rows, "Standing voids by code and arm")
    undone = sum(not void.standing for void in results.voids)
    if undone:
        yield Line(f"{many(undone, 'void')} taken back.")


def _post_score(results: Results) -> Iterable[Block]:
    """Every void that was decided when the score was known, one by one: the reader judges whether the score had to do with it."""
    late = sorted((void for void in results.voids if void.score_was_known), key=lambda void: (void.at_ms, void.trial))
    if not late:
        yield Line("No trial was withdrawn after its score was known.")
        return
    columns = (Col("trial"), prose("cell", 14), prose("why", 14), prose("by", 20), num("then"), num("kept"))
    yield Table(
        columns, tuple(map(_late, late)), "Withdrawn after the score was known: the reward then, and the one that is kept in its place"
    )


def _late(void: VoidResult) -> tuple[str, ...]:
    return (
        word(void.trial),
        f"{word(void.task)} {word(void.arm)} r{void.replicate}",
        f"{word(void.code)}: {word(void.reason, TEXT_MAX)}{'' if void.standing else ' (taken back)'}",
        f"{word(void.author)} {instant(void.at_ms)}",
        fixed(void.reward),
        fixed(void.kept_reward),
    )


def findings(all_of: Sequence[Results]) -> Section:
    """Open ones, stop-loss first; how many are over."""
    every = {(each.campaign, each.code, each.subject, each.opened_at_ms): each for results in all_of for each in results.findings}
    shown = sorted((each for each in every.values() if each.closed_at_ms is None), key=_worst_first)
    over = len(every) - len(shown)
    tail = lines([f"{many(over, 'finding')} {'is' if over == 1 else 'are'} over."] if over else [], Tone.QUIET)
    unasked = tuple(Line(f"{nobody_asked(one)}.", Tone.WARN) for one in all_of if one.origin == "import")
    tail = (*unasked, *tail)
    if not shown:
        none = () if len(unasked) == len(all_of) else (Line("None is open."),)
        return Section("findings", "Open findings", (*none, *tail))
    columns = (Col("severity"), Col("code"), prose("what", 20), prose("to do", 16), prose("acked by", 8))
    return Section("findings", "Open findings", (Table(columns, tuple(map(_finding, shown))), *tail))


def nobody_asked(one: Results) -> str:
    """The daemon asks the rules of the audit about its own campaigns alone, so that an import has no findings, whatever is wrong."""
    return (
        f"nobody has looked for findings of {word(one.campaign)}, which is imported: see marathonctl audit --campaign {word(one.campaign)}"
    )


def _worst_first(each: FindingResult) -> tuple[int, str, str, int]:
    rank = SEVERITIES.index(each.severity) if each.severity in SEVERITIES else len(SEVERITIES)
    return rank, each.code, each.subject, each.opened_at_ms


def _finding(each: FindingResult) -> tuple[str, ...]:
    acked = "no" if each.acked_by is None else f"{word(each.acked_by)}: {word(each.ack_reason, TEXT_MAX)}"
    known = meaning_of(each.code)
    what = f"{word(each.subject)}: {word(each.detail, TEXT_MAX)} (since {instant(each.opened_at_ms)})"
    return word(each.severity).replace("_", "-"), word(each.code), what, "-" if known is None else known.todo, acked


def disclosures(results: Results) -> Section:
    if not results.disclosures:
        return Section("disclosures", "Disclosures", (Line("None is stored with this campaign."),))
    columns = (prose("code", 14), prose("arms", 10), prose("here", 20), prose("compared with", 20))
    rows = tuple(
        (word(each.code), word(each.arms, TEXT_MAX), word(each.text, TEXT_MAX), word(each.compared_with, TEXT_MAX))
        for each in results.disclosures
    )
    title = f"Disclosures (version {results.disclosure_version})" if results.disclosure_version else "Disclosures"
    return Section("disclosures", title, (Table(columns, rows),))


def void_tally(results: Results, of: Callable[[VoidResult], bool] = lambda _: True) -> str:
    """Standing voids by arm: ``plain 2 (2 provider), …``; empty: none."""
    parts = []
    for arm in results.arms:
        codes = Counter(word(void.code) for void in results.voids if void.standing and void.arm == arm.name and of(void))
        if codes:
            parts.append(f"{word(arm.name)} {codes.total()} ({tally(codes)})")
    return "; ".join(parts)
