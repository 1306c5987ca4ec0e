"""Rules about the code that no tool checks for us: paths of one machine, sizes, docstrings, swallowed errors."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINES_AT_MOST = 450
# Written with a gap so that this file does not trip over itself.
MACHINE_PATHS = re.compile(
    r"(?<![\w.~$}>])/(?:home/(?!\{|<|\$|agent\b|ana\b)\w|root(?![\w-])|wor" + r"k(?![\w-])|tmp/help" + r"er|var/tmp/de" + r"v\b|Users/\w)"
)


def tracked() -> list[Path]:
    """Every text file that git knows, the licence left out.  Without git (a source archive): every file outside hidden folders."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        paths = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        paths = [p for p in ROOT.rglob("*") if not any(part.startswith(".") for part in p.relative_to(ROOT).parts)]
    return [p for p in paths if p.is_file() and p.name != "LICENSE" and b"\0" not in p.read_bytes()[:4096]]


TRACKED = tracked()
QUOTED = ROOT / "marathond" / "agents" / "codex" / "contracts"
"""What codex says word for word, its own names for agents included."""
PYTHON = [path for path in TRACKED if path.suffix == ".py"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def swallowing(tree: ast.AST) -> list[int]:
    """Line numbers of handlers that catch everything and do nothing with it: the body is only pass, ``...``, continue or return None."""
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        broad = any(kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException")) for kind in kinds)
        if broad and all(silent(statement) for statement in node.body):
            lines.append(node.lineno)
    return lines


def silent(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return):
        return statement.value is None or (isinstance(statement.value, ast.Constant) and statement.value.value is None)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass | ast.Continue)


def test_there_is_something_to_look_at() -> None:
    assert len(PYTHON) > 20
    assert ROOT / "pyproject.toml" in TRACKED


@pytest.mark.parametrize("path", [path for path in TRACKED if path.parent != QUOTED], ids=name)
def test_no_path_of_one_machine(path: Path) -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()[:120]}"
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_module_is_documented_and_of_a_readable_size(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < LINES_AT_MOST, f"{name(path)} has {len(text.splitlines())} lines, at most {LINES_AT_MOST - 1}"
    assert (ast.get_docstring(ast.parse(text)) or "").strip(), f"{name(path)} has no module docstring"


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_no_error_is_swallowed(path: Path) -> None:
    found = swallowing(ast.parse(path.read_text()))
    assert not found, f"{name(path)}: everything is caught and dropped at lines {found}"


def test_the_rules_can_fail() -> None:
    """A rule that matches nothing would pass for ever."""
    bad = "try:\n    x()\nexcept Exception:\n    pass\ntry:\n    x()\nexcept (ValueError, BaseException):\n    return None\n"
    assert swallowing(ast.parse(bad)) == [3, 7]
    assert swallowing(ast.parse("try:\n    x()\nexcept OSError:\n    pass\n")) == []
    for path in ("/ho" + "me/bob/x", "/ro" + "ot/x", "'/wor" + "k/main'", "/tmp/help" + "er-1", "/Use" + "rs/bob"):
        assert MACHINE_PATHS.search(path), path
    for path in ("/workspace/x", "~/root/x", "artifacts/root/x", "/home/agent/.codex", "$HOME/root"):
        assert not MACHINE_PATHS.search(path), path
