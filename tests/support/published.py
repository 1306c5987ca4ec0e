"""Published schemas, as a careful reader uses them: with every field declared.  No test of its own.

A published schema lets fields be added; here an object with a field that it does not declare is refused, so that none is printed unsaid.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jsonschema import Draft202012Validator

from marathond.cli import schema_forms as forms
from marathond.service import settings as settings_module
from marathond.service.layers import TABLES, Layer


def closed(node: Any) -> Any:
    """A schema in which an object has no further fields, where the published one does not say anything of further ones."""
    if isinstance(node, list):
        return [closed(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: closed(value) for key, value in node.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


@functools.cache
def published(name: str) -> dict[str, Any]:
    """The schema, made once; not to be changed."""
    return forms.schema(name)


@functools.cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(closed(published(name)))


def wrong(name: str, value: object) -> list[str]:
    """What of a printed value is not as its schema says, a line each."""
    return [f"{error.json_path}: {error.message[:300]}" for error in validator(name).iter_errors(value)]


def printed(name: str, text: str) -> Any:
    """The document on stdout; it is whole, alone, and as its schema says."""
    value = json.loads(text, parse_constant=no_number)
    assert not wrong(name, value), "\n".join(wrong(name, value))
    return value


def printed_lines(name: str, text: str) -> list[Any]:
    """The documents of a stream."""
    return [printed(name, line) for line in text.splitlines()]


def no_number(word: str) -> object:
    raise AssertionError(f"{word} is no JSON")


def properties(node: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every field of a schema, by name."""
    if isinstance(node, Mapping):
        if isinstance(node.get("properties"), Mapping):
            yield from node["properties"].items()
        for each in node.values():
            yield from properties(each)
    elif isinstance(node, list):
        for each in node:
            yield from properties(each)


# ---- configurations


@contextmanager
def configurations_watched() -> Iterator[None]:
    """Whatever configuration the loader takes meanwhile is right by the published schema, too; else who loads it fails."""
    original, seen = settings_module._validate, set[str]()

    def validate(layers: tuple[Layer, ...]) -> settings_module.Settings:
        made = original(layers)
        text = json.dumps(_as_one_file(layers), default=str, sort_keys=True)
        if text not in seen:
            found = wrong(forms.CONFIG, json.loads(text))
            assert not found, f"the loader takes it, the published schema does not: {found}"
            seen.add(text)
        return made

    settings_module._validate = validate
    try:
        yield
    finally:
        settings_module._validate = original


def _as_one_file(layers: Sequence[Layer]) -> dict[str, Any]:
    """A file that says the same as file, environment and profile together: the stronger one counts, and nothing is said by leaving out."""
    whole: dict[str, Any] = {}
    for layer in reversed(layers):
        for section, table in layer.data.items():
            if section in TABLES and isinstance(table, Mapping):
                for name, each in table.items():
                    place = whole.setdefault(section, {}).setdefault(name, {})
                    place.update(each) if isinstance(each, Mapping) else None
            else:
                whole.setdefault(section, {}).update(table)
    return _without_nothing(whole)


def _without_nothing(node: Any) -> Any:
    return {key: _without_nothing(each) for key, each in node.items() if each is not None} if isinstance(node, Mapping) else node
