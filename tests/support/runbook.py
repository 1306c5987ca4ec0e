"""docs/runbook.md, made from the words that the product itself prints; ``python -m tests.support.runbook`` rewrites it."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from marathond.cli.explain import known

PATH = Path(__file__).parents[2] / "docs" / "runbook.md"

_HEAD = """# Runbook

What each code means, and what to do. `marathonctl explain CODE` prints one of these; `marathonctl findings`, `show` and `status` name the
codes. Ids such as `f12` are those of the catalogue of silent faults that tests carry in their names.

The order at night: `marathonctl status` (the first two lines say whether a person is needed), `findings` (the worst first, with what to
do), `show TRIAL` of one that it names, `tail -n 50` for what happened around it. `pause --reason …` stops admitting and harms nothing.

"""
_KINDS = {
    "finding": (
        "Findings",
        "Something that a person must know. `info` and `warning` stand in `status` as counts; `error` makes it degraded until somebody"
        " has said `ack NO --reason …` or it is over; a `stop-loss` closes admission for all arms until `resume --reason …`. A finding"
        " closes by itself when what it says is over.",
    ),
    "void": (
        "Voids",
        "A trial that infrastructure spoiled, or that a person withdrew: its cell is open again and runs by itself, at most"
        ' `admission.passes` times; rows, scores and artifacts are kept. `marathonctl sql "select code, arm, count(*) from v_void group by'
        ' code, arm order by 3 desc"` says whether one arm is hit.',
    ),
    "review": (
        "Reviews",
        "Evidence points both ways, so a person decides; the cell counts as neither done nor open until then. Nothing waits for it.",
    ),
    "park": ("Parks", "Cells that are set aside with a reason; everything else goes on."),
    "wait": ("Reasons for waiting", "Why open cells do not start now, as `status`, `top` and `capacity` say it beside a count of cells."),
    "disclosure": (
        "Disclosures",
        "What a reader of a comparison must be told. Nobody writes them: they are made from the arms and what these share, and"
        " `marathonctl disclosures` has them with the campaign's own values.",
    ),
}


def text() -> str:
    """The whole file."""
    parts = [_HEAD]
    for kind, codes in groupby(known(), key=lambda each: each.kind):
        title, intro = _KINDS[kind]
        parts.append(f"## {title}\n\n{intro}\n\n")
        for each in codes:
            faults = f" *({', '.join(each.faults)})*" if each.faults else ""
            parts.append(f"### `{each.code}`\n\n{each.means}{faults}\n\n**Do:** {each.todo}\n\n")
    return "".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
