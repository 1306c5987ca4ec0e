"""No decision reads the time of a file: clocks of storage differ, and anybody may set one (fault e05).

Each place that reads one at all is named here with what it does with it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import marathond

ROOT = Path(marathond.__file__).parent
TIMES = frozenset(
    {f"st_{which}time{unit}" for which in "mca" for unit in ("", "_ns")}
    | {f"get{which}time" for which in "mca"}
    | {"st_birthtime", "st_birthtime_ns"}
)
COMPARED = "compared for equality alone: written again, read again"
ALLOWED = {
    "engine/trees.py": "handed on to the container with the file",
    "gateway/keys.py": COMPARED,
    "gateway/listeners.py": COMPARED,
    "gateway/serve.py": COMPARED,
    "staging/loopx.py": COMPARED,
    "staging/mounted.py": "compared for equality alone: read again; of what is too large to be read, in its digest, which says so",
    "staging/tree.py": COMPARED,
    "staging/store.py": "which of several trees that all match is looked at first; a campaign's own is held by its digest",
    "service/roots.py": "measured, against our own clock",
    "service/doctor/sources_gateway.py": "told to a person: how long the gateway has been silent",
}
"""File to what it does with the time."""
TOLD = {
    "agents/pinned.py": "a container's word of its agent's end, between times of our own clock, and recorded as its word (core/endtime.py)"
}
"""What tells a time where nobody looked; nothing else may stand in for it."""


def reads(tree: ast.AST) -> list[int]:
    """Lines that read a file's time."""
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in TIMES]
    quoted = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in TIMES]
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in TIMES]
    return sorted({node.lineno for node in (*named, *quoted, *imported)})


def test_e05_no_decision_reads_the_time_of_a_file() -> None:
    found = {str(path.relative_to(ROOT)): reads(ast.parse(path.read_text())) for path in ROOT.rglob("*.py")}
    assert len(found) > 200
    assert {name: lines for name, lines in found.items() if lines and name not in {*ALLOWED, *TOLD}} == {}
    assert all(len(found[name]) == 1 for name in TOLD)


def test_e05_what_is_allowed_is_there_and_in_no_room_that_decides() -> None:
    for name in ALLOWED:
        assert reads(ast.parse((ROOT / name).read_text())), f"{name} reads none any more: take it off the list"
        assert not name.startswith(("core/", "flow/", "ledger/", "agents/", "tasks/", "ports/"))


def test_the_rule_can_fail() -> None:
    bad = "import os\nos.stat(p).st_mtime\nos.path.getmtime(p)\nfrom os.path import getctime\ngetctime(p)\ngetattr(s, 'st_atime_ns')\n"
    assert reads(ast.parse(bad)) == [2, 3, 5, 6]
