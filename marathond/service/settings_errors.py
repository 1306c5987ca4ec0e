"""What is wrong with a configuration, a line each: ``config.toml:31: admission.passes = 0: must be at least 1``.

Owns the words.  Must not decide what is wrong: pydantic and the models did.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from marathond.core.errors import ConfigError
from marathond.core.text import hidden_url
from marathond.core.tomlindex import KeyPath, dotted
from marathond.service.knobs import did_you_mean, one_of, plain
from marathond.service.layers import Layer, as_model, members
from marathond.service.tomlfile import show

_EXPECTED = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "string_too_short": "must not be empty",
    "path_type": "must be a path in quotes",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "too_short": "must not be empty",
    "missing": "required",
}


class ConfigErrors(ConfigError):
    """Everything that is wrong; ``str()`` has a line for each, ``errors`` holds them apart."""

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(first.where, first.what, first.expected)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


def explain(model: type[BaseModel], error: ValidationError, layers: Sequence[Layer]) -> list[ConfigError]:
    """Each of pydantic's errors with its place, the value as written, and what was expected; in the order of the file."""
    details = [detail for detail in error.errors(include_url=False) if detail["type"] != "default_factory_not_called"]
    return sorted((_explain(model, detail, layers) for detail in details), key=_line)


def _line(error: ConfigError) -> int:
    line = error.where.rpartition(":")[2]
    return int(line) if line.isdigit() else 0


def _explain(model: type[BaseModel], detail: ErrorDetails, layers: Sequence[Layer]) -> ConfigError:
    path = _path(detail)
    layer = next((layer for layer in layers if layer.holds(path)), None)
    if layer is None:  # missing: blame the nearest thing that is there
        nearest = next((layer for layer in layers if layer.file is not None), layers[-1])
        return ConfigError(nearest.where(path), dotted(path), _expected(model, path, detail))
    written = layer.written(path)
    if path == ("notify", "webhook"):  # these lines end up in journals, and the address is a secret
        written = hidden_url(str(written))
    return ConfigError(layer.where(path), show(dotted(path), written), _expected(model, path, detail))


def _path(detail: ErrorDetails) -> KeyPath:
    path: KeyPath = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] == "guilty":
        for part in str(detail["ctx"]["key"]).split("."):
            path = (*path, int(part) if part.isdigit() else part)
    return path


def _expected(model: type[BaseModel], path: KeyPath, detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in {"guilty", "wrong"}:
        return str(context["expected"])
    if kind in {"enum", "literal_error"}:
        return one_of(_choices(_annotation_of(model, path)), detail.get("input"))
    if kind == "extra_forbidden":
        word = "section" if len(path) == 1 else "key"
        known = _names(model, path[:-1])
        at_home = _sections_with(model, str(path[-1])) if word == "key" else []
        otherwise = f"; did you mean {' or '.join(at_home)}?" if at_home else f"; known: {', '.join(known)}"
        return f"unknown {word}" + did_you_mean(str(path[-1]), known, otherwise=otherwise)
    if kind not in _EXPECTED:
        return detail["msg"].lower()
    return _EXPECTED[kind].format(**{name: plain(value) if isinstance(value, int | float) else value for name, value in context.items()})


def _sections_with(model: type[BaseModel], name: str) -> list[str]:
    """``daemon.state_dir``: where a key that stands in a wrong section is at home."""
    sections = ((title, as_model(field.annotation)) for title, field in model.model_fields.items())
    return [f"{title}.{name}" for title, section in sections if section is not None and name in section.model_fields]


def _names(model: type[BaseModel], path: KeyPath) -> list[str]:
    section = as_model(_annotation_of(model, path))
    return [] if section is None else list(section.model_fields)


def _annotation_of(model: type[BaseModel], path: KeyPath) -> Any:
    """What the models declare at ``path``: through tables by name, through lists by index."""
    annotation: Any = model
    for part in path:
        annotation = next((kind for kind in members(annotation) if kind is not type(None)), None)
        if (section := as_model(annotation)) is not None:
            info = section.model_fields.get(str(part))
            annotation = info.annotation if info is not None else None
        elif (arguments := typing.get_args(annotation)) and typing.get_origin(annotation) in {dict, tuple}:
            annotation = arguments[1] if typing.get_origin(annotation) is dict else arguments[0]
        else:
            return None
    return annotation


def _choices(annotation: Any) -> list[str]:
    for kind in members(annotation):
        if typing.get_origin(kind) is typing.Literal:
            return [str(value) for value in typing.get_args(kind)]
        if hasattr(kind, "__members__"):
            return [str(member.value) for member in kind]
    return []
