"""Every code with which the product voids a trial is known to the ledger: an unknown one would end the daemon where it is written."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import marathond

ROOT = Path(marathond.__file__).parent
_ROW = re.compile(r"^\s+\('([a-z_]+)',\s+'(?:infrastructure|operator)',", re.MULTILINE)
RAISED = frozenset({"GateFailed", "refusal", "Fail"})


def known() -> set[str]:
    return {code for path in (ROOT.parent / "migrations").glob("*.sql") for code in _ROW.findall(path.read_text())}


def voided() -> dict[str, str]:
    """Literal codes, each with one place where it is used."""
    found: dict[str, str] = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(first := node.args[0], ast.Constant):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in RAISED and isinstance(first.value, str):
                found[first.value] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return found


def test_every_void_code_that_the_product_names_is_in_the_ledger() -> None:
    codes = voided()
    assert len(codes) > 20
    assert {code: place for code, place in codes.items() if code not in known()} == {}
