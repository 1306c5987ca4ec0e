"""The JSON Schema of a configuration file, made from the models by which it is read.

Owns what differs between the two: a file may leave out what has a default that only the daemon knows; a rule over several keys has no
schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from marathond.cli.schema_make import DIALECT, MAJOR, PROMISE, in_words
from marathond.service.layers import default_layer
from marathond.service.settings import Settings

ABOUT = (
    "marathond.toml, read as TOML. It is what the file may say; the environment (MARATHOND_SECTION__KEY) is stronger. "
    "Rules over several keys, and what must exist on the host, are not here: marathonctl config check."
)


class _OfFile(GenerateJsonSchema):
    """Titles that repeat a name are left out, and texts are in plain words."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        made.pop("title", None)
        return made

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        made = super().enum_schema(schema)
        made.pop("title", None)
        made.pop("description", None)
        return made


def config_schema() -> dict[str, Any]:
    """Of ``config.toml``; with the keys that somebody else may give, such as the daemon's own folder, not required."""
    made = Settings.model_json_schema(mode="validation", schema_generator=_OfFile)
    defs = made.pop("$defs")
    given: Mapping[str, Mapping[str, Any]] = default_layer({}, 0).data
    for section, keys in given.items():
        table = _table(made["properties"][section], defs)
        table["required"] = [key for key in table.get("required", ()) if key not in keys]
        if not table["required"]:
            del table["required"]
            made["required"] = [name for name in made["required"] if name != section]
    made.pop("title", None)
    made.pop("description", None)
    frame = {"$schema": DIALECT, "$id": f"urn:marathond:schema:{MAJOR}:config", "$comment": PROMISE, "title": "marathond.toml"}
    whole: dict[str, Any] = _plain({**frame, "description": ABOUT, **made, "$defs": dict(sorted(defs.items()))})
    return whole


def _table(field: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    reference: str = field["$ref"]
    table: dict[str, Any] = defs[reference.removeprefix("#/$defs/")]
    return table


def _plain(node: Any) -> Any:
    """A null is no value of TOML: a key that may be null in the model is one that may be left out."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    made = {key: _plain(value) for key, value in node.items()}
    if isinstance(made.get("description"), str):
        made["description"] = in_words(made["description"])
    if "patternProperties" in made:
        made.setdefault("additionalProperties", False)
    some = made.get("anyOf")
    if isinstance(some, list) and {"type": "null"} in some:
        left = [each for each in some if each != {"type": "null"}]
        del made["anyOf"]
        made = {**(left[0] if len(left) == 1 else {"anyOf": left}), **made}
    if "default" in made and made["default"] is None:
        del made["default"]
    return made
