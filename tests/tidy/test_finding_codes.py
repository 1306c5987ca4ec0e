"""Every finding that the product can raise is explained in core/audit/catalogue.py, and nothing is explained that is raised nowhere."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import marathond
from marathond.core.audit import catalogue
from marathond.core.audit.rules import RULES

ROOT = Path(marathond.__file__).parent
RAISING = frozenset({"Found", "Remark", "Concern"})
"""Makers whose first argument is a finding's code, ..."""
HOMES = frozenset({"marathond.core.model_rules", "marathond.core.audit.rule", "marathond.ports.agent", "marathond.core.money"})
"""... where they come from: others are called so, too."""
WRITERS = frozenset({"_finding"})
"""Helpers that pass a code on: any of their first arguments that is a literal of the form of a code."""
WATCHED = frozenset({"WATCHED", "SPENT", "CONCERNS"})
"""Tuples of codes that somebody closes again: each must be one that is raised."""
PLANTERS = Path("service/doctor")
"""Raises whatever it is asked to, on scratch ledgers."""


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        if PLANTERS not in path.relative_to(ROOT).parents:
            yield path, ast.parse(path.read_text())


class Codes(ast.NodeVisitor):
    """Codes raised in one module, by literal or by a constant; ``open``: those that only a value could tell."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        self.path, self.found, self.closed, self.open = path, {}, {}, []
        self.found: dict[str, str]
        self.closed: dict[str, str]
        self.open: list[str]
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._constants = constants(tree)
        self._makers = RAISING if module_name(path) in HOMES else imported_makers(tree)
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._in(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._in(node)

    def _in(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._functions.append(node)
        self.generic_visit(node)
        self._functions.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Name) and target.id in WATCHED for target in node.targets) and isinstance(node.value, ast.Tuple):
            for element in node.value.elts:
                self._take(element, self.closed, node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = called(node.func)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        passed = [called(argument) for argument in node.args]
        if name in self._makers and node.args:
            self._take(node.args[0], self.found, node)
        elif "raise_finding" in (name, *passed):
            self._take(given.get("code"), self.found, node)
        elif "close_finding" in (name, *passed):
            self._take(given.get("code"), self.closed, node)
        elif name in WRITERS:
            literal = next((each for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)), None)
            self._take(literal, self.found, node)
        self.generic_visit(node)

    def _take(self, value: ast.expr | None, into: dict[str, str], node: ast.AST) -> None:
        where = f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        codes = self._values(value)
        if codes is None and into is self.found:  # what is closed by a value was opened by somebody who is looked at
            self.open.append(where)
        for code in codes or ():
            into[code] = where

    def _values(self, value: ast.expr | None) -> set[str] | None:
        """None: cannot be told from the text; empty: handed on by a caller, who is looked at himself."""
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return {value.value}
        if isinstance(value, ast.Attribute):  # of a Found, Remark or Concern that was made elsewhere; of a rule that stands in RULES
            return set() if value.attr == "code" else None
        if isinstance(value, ast.Subscript):  # the key of a finding that is open
            return set()
        if not isinstance(value, ast.Name):
            return None
        if value.id in self._constants:
            return {self._constants[value.id]}
        if self._functions:
            here = self._functions[-1]
            arguments = {argument.arg for argument in (*here.args.args, *here.args.kwonlyargs)}
            if value.id in arguments:
                return set()
            return assigned(here, value.id) or None
        return None


def module_name(path: Path) -> str:
    return ".".join(("marathond", *path.relative_to(ROOT).with_suffix("").parts))


def imported_makers(tree: ast.Module) -> frozenset[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in HOMES]
    return frozenset(alias.name for node in imports for alias in node.names) & RAISING


def called(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def constants(tree: ast.Module) -> dict[str, str]:
    """Names of the module that stand for a text: its own, and those that it imports from the package."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("marathond"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                if alias.name.isupper() and isinstance(value := getattr(module, alias.name, None), str):
                    found[alias.asname or alias.name] = value
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) and isinstance(target, ast.Tuple) else [node.value]
                for name, value in zip(names, values, strict=False):
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found[name.id] = value.value
    return found


def assigned(here: ast.AST, name: str) -> set[str]:
    """Literals that the function itself gives the name, as ``code = "a" if … else "b"`` or ``for code in ("a", "b")``."""
    found: set[str] = set()
    for node in ast.walk(here):
        value = None
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets):
            value = node.value
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == name:
            value = node.iter
        parts = [value.body, value.orelse] if isinstance(value, ast.IfExp) else value.elts if isinstance(value, ast.Tuple) else []
        found |= {each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return found


def listener_codes() -> set[str]:
    """Codes of the gateway's acks, which the daemon raises as ``gateway_…`` (flow/ingest.py), but for a container that ended."""
    from marathond.gateway import listeners, netns

    raw: set[str] = set()
    for module in (listeners, netns):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if isinstance(node, ast.Call) and called(node.func) in ("_ack", "NamespaceError"):
                words = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
                raw |= {words[1]} if called(node.func) == "_ack" and len(words) > 1 and words[0] in ("failed", "refused") else set()
                raw |= set(words[:1]) if called(node.func) == "NamespaceError" else set()
            elif isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "code" for target in node.targets):
                raw |= {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return {code if code == "port_taken" else f"gateway_{code}" for code in raw - {"", "container_gone"}}


def told_by_value() -> dict[str, set[str]]:
    """Places where only a value tells the code, and which there are."""
    from marathond.core.agent_rules import BY_RULE

    return {"core/agent_rules.py": {code for code, _ in BY_RULE.values()}, "flow/ingest.py": listener_codes()}


@pytest.fixture(scope="module")
def raised() -> dict[str, str]:
    found: dict[str, str] = {}
    closed: dict[str, str] = {}
    unread: list[str] = []
    known = told_by_value()
    for path, tree in sources():
        codes = Codes(path, tree)
        found |= codes.found
        closed |= codes.closed
        unread += [where for where in codes.open if str(path.relative_to(ROOT)) not in known]
    assert not unread, f"a finding's code that nobody can tell from the text: {unread}"
    for where, more in known.items():
        found |= dict.fromkeys(more, where)
    never = {code: place for code, place in closed.items() if code not in found}
    assert not never, f"closed, and raised nowhere: {never}"
    return found


def test_every_finding_that_is_raised_is_explained(raised: dict[str, str]) -> None:
    assert len(raised) > 40, "the collector has gone blind"
    missing = {code: place for code, place in raised.items() if catalogue.meaning_of(code) is None}
    assert not missing, f"missing in core/audit/catalogue.py: {missing}"


def test_nothing_is_explained_that_is_raised_nowhere(raised: dict[str, str]) -> None:
    assert sorted(set(catalogue.RAISED) - set(raised)) == []


def test_no_code_has_two_explanations() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes)), "two rules of one code"
    assert sorted(set(codes) & set(catalogue.RAISED)) == []


@pytest.mark.parametrize("code", sorted({*catalogue.RAISED, *(rule.code for rule in RULES)}))
def test_an_explanation_says_what_it_means_and_what_to_do(code: str) -> None:
    meaning = catalogue.meaning_of(code)
    assert meaning is not None
    for words in (meaning.means, meaning.todo):
        assert words == words.strip() and 15 <= len(words) <= 320 and "\n" not in words, words
    assert meaning.means != meaning.todo


def test_the_collector_sees_what_it_should() -> None:
    """It reads a literal, a constant, a choice and a list, and says so when it cannot read."""
    text = """
from marathond.core.model_rules import Found
from marathond.ports.agent import Remark
CODE = "by_constant"
WATCHED = ("by_tuple",)
async def f(world, code):
    await write(findings.raise_finding, code="by_literal", severity="error")
    Found(CODE, "error", "", "")
    name = "one" if world else "other"
    Remark(name, "words")
    await _finding(world, "by_helper", "x", "y")
    await write(findings.raise_finding, code=code)
    Found(strange(), "error", "", "")
"""
    codes = Codes(ROOT / "core" / "some.py", ast.parse(text))
    assert set(codes.found) == {"by_literal", "by_constant", "one", "other", "by_helper"} and set(codes.closed) == {"by_tuple"}
    assert codes.open == ["core/some.py:13"]
