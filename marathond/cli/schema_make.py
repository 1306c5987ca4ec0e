"""JSON Schemas (draft 2020-12) of what ``--json`` prints and of the configuration, made from the types themselves.

Owns how a type becomes a schema: every field is there and has a description, from its own words, else from the house's vocabulary
(:mod:`.schema_words`) and its unit.  Must not know which command prints what (:mod:`.schema_forms`).
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as Collection
from itertools import pairwise
from typing import Any, Literal, TypeVar, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from marathond.cli.schema_words import with_unit, words_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAJOR = 1
"""Of all schemas; a higher one when a field is renamed or removed, or means something else."""
PROMISE = (
    f"Version {MAJOR}. Within it fields may be added, and values of a text that names a state or a code; none is renamed or removed, and "
    "none changes its type: readers must pass over fields that they do not know."
)
_PARAM = re.compile(r"(?:^|(?<=\s)):param (\w+):", re.MULTILINE)
_DEFS = "#/$defs/"


class _OfOutput(GenerateJsonSchema):
    """What is printed: no field is ever left out, so all are required; titles that repeat a name are left out."""

    def field_is_required(
        self,
        field: core_schema.ModelField | core_schema.DataclassField | core_schema.TypedDictField,
        total: bool,
    ) -> bool:
        return field.get("required", total) if field["type"] == "typed-dict-field" else True

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _told(super().dataclass_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _told(super().typed_dict_schema(schema), schema["cls"]) if "cls" in schema else super().typed_dict_schema(schema)

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        made = super().enum_schema(schema)
        made.pop("title", None)
        return made


def output_schema(parts: Sequence[Sequence[Any]], *, many: Sequence[bool]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One schema for each of ``parts``, whose types are printed as one object, and the definitions that these share.

    :param parts: dataclasses and typed dicts; a single other type stands for itself.
    :param many: whether an array of them is printed.
    """
    mode: Literal["serialization"] = "serialization"
    adapters = [((i, j), mode, TypeAdapter(kind)) for i, kinds in enumerate(parts) for j, kind in enumerate(kinds)]
    made, found = TypeAdapter.json_schemas(adapters, schema_generator=_OfOutput)
    defs: dict[str, Any] = found.get("$defs", {})
    schemas = []
    for i, kinds in enumerate(parts):
        one = _merged([_resolved(made[(i, j), mode], defs) for j in range(len(kinds))])
        schemas.append({"type": "array", "items": one} if many[i] else one)
    return schemas, _used(schemas, defs)


def _resolved(schema: JsonSchemaValue, defs: Mapping[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "")
    return dict(defs[reference.removeprefix(_DEFS)]) if reference else dict(schema)


def _merged(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if len(schemas) == 1:
        return schemas[0]
    words = [schema["description"] for schema in schemas if schema.get("description")]
    return {
        **({"description": " ".join(words)} if words else {}),
        "type": "object",
        "properties": {name: each for schema in schemas for name, each in schema["properties"].items()},
        "required": [name for schema in schemas for name in schema.get("required", ())],
    }


def _used(schemas: Iterable[Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """Definitions that are referred to, by name."""
    wanted: set[str] = set()
    queue: list[Any] = list(schemas)
    while queue:
        node = queue.pop()
        if isinstance(node, Mapping):
            name = node.get("$ref", "").removeprefix(_DEFS) if isinstance(node.get("$ref"), str) else ""
            if name and name not in wanted:
                wanted.add(name)
                queue.append(defs[name])
            queue += node.values()
        elif isinstance(node, list):
            queue += node
    return {name: defs[name] for name in sorted(wanted)}


Schemas = TypeVar("Schemas", dict[str, Any], list[dict[str, Any]])


def with_nulls(node: Schemas, names: Collection[str]) -> Schemas:
    """The same, where every float, and the fields of these names, may be null, too."""
    return cast(Schemas, _with_nulls(node, names))


def _with_nulls(node: Any, names: Collection[str]) -> Any:
    if isinstance(node, list):
        return [_with_nulls(each, names) for each in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: _with_nulls(each, names) for key, each in node.items()}
    if made.get("type") == "number":
        made["type"] = ["number", "null"]
    for name in names & made.get("properties", {}).keys() if isinstance(made.get("properties"), dict) else ():
        field = made["properties"][name]
        made["properties"][name] = {**{k: field[k] for k in ("description",) if k in field}, "anyOf": [_bare(field), {"type": "null"}]}
    return made


def _bare(field: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in field.items() if key != "description"}


# ---- words


def _told(schema: JsonSchemaValue, kind: type) -> JsonSchemaValue:
    """With the class's own words, and each field's."""
    schema.pop("title", None)
    schema.pop("description", None)
    whole, params = split_docstring(kind.__doc__ or "")
    if whole and not whole.startswith(f"{kind.__name__}("):  # what dataclasses write where nobody did
        schema = {"description": whole, **schema}
    beside = attribute_words(kind)
    for name, field in schema.get("properties", {}).items():
        own, said = field.pop("description", "") or params.get(name) or beside.get(name), said_of(name, whole)
        text = own or (said if f"`{name}`:" in said else words_of(name) or said)
        if text:
            schema["properties"][name] = {"description": with_unit(name, text), **field}
    return schema


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The words of a class, and those of its fields (``:param name:``); what Python calls None is null here."""
    head, *rest = _PARAM.split(inspect.cleandoc(text))
    params = dict(zip(rest[::2], rest[1::2], strict=True))
    return in_words(head), {name: in_words(each) for name, each in params.items()}


def said_of(name: str, whole: str) -> str:
    """The sentences of a class that speak of a field."""
    return " ".join(each for each in re.split(r"(?<=\.)\s+", whole) if f"`{name}`" in each)


def attribute_words(kind: type) -> dict[str, str]:
    """Texts below the fields of a class and of those that it is made from."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("marathond."):
            found |= _texts_below(each)
    return found


def _texts_below(kind: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # made by a call: it has no source of its own
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for before, statement in pairwise(body):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(statement, ast.Expr):
            value = statement.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[before.target.id] = in_words(value.value)
    return found


def in_words(text: str) -> str:
    """One line for a reader of JSON."""
    plain = re.sub(r":\w+:`~?([^`]+)`", r"\1", " ".join(text.split()))
    return re.sub(r"\bNone\b", "null", plain.replace("``", "`")).strip()
