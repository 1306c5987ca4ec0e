"""The schemas that lie in docs/schema are those of the code: a change of what is printed is seen where the change is read.

``python -m tests.unit.test_schema_dump`` writes them anew; it refuses what would break a reader, unless ``--break`` is given (then the
version in marathond/cli/schema_make.py must rise, too).
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from marathond.cli import schema_forms as forms
from marathond.cli.schema_make import MAJOR
from tests.support.published import properties, published

FOLDER = Path(__file__).parents[2] / "docs" / "schema"


def file_of(name: str) -> Path:
    return FOLDER / f"{name.replace(' ', '-')}.schema.json"


def text_of(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=1, ensure_ascii=True) + "\n"


def kept(name: str) -> Any:
    path = file_of(name)
    return json.loads(path.read_text()) if path.exists() else None


def resolved(node: Any, whole: Any) -> Any:
    while isinstance(node, dict) and "$ref" in node:
        node = whole["$defs"].get(node["$ref"].removeprefix("#/$defs/"), {})
    return node


def types(node: Any, whole: Any) -> set[str]:
    """JSON types that a value may have; empty: any."""
    node = resolved(node, whole)
    found = set([node["type"]] if isinstance(node.get("type"), str) else node.get("type", ()))
    for each in node.get("anyOf", ()):
        found |= types(each, whole)
    return found


def breaks(old: Any, new: Any, old_whole: Any = None, new_whole: Any = None, where: str = "$", depth: int = 0) -> Iterator[str]:
    """In what a reader of the old output would fail on the new one."""
    old_whole, new_whole = old_whole or old, new_whole or new
    old, new = resolved(old, old_whole), resolved(new, new_whole)
    if depth > 12:
        return
    if "properties" in old and "anyOf" in new:  # a further case is an addition, as long as the old one is still there
        found = [list(breaks(old, each, old_whole, new_whole, where, depth + 1)) for each in new["anyOf"]]
        yield from min(found, key=len)
        return
    before, after = types(old, old_whole), types(new, new_whole)
    if before and (not after or after - before - ({"integer"} if "number" in before else set())):
        yield f"{where}: was {', '.join(sorted(before))}, would be {', '.join(sorted(after)) or 'anything'}"
        return
    for name, field in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{where}.{name}: would be gone"
        else:
            yield from breaks(field, new["properties"][name], old_whole, new_whole, f"{where}.{name}", depth + 1)
    for name in set(old.get("required", ())) - set(new.get("required", ())) & new.get("properties", {}).keys():
        if name in new.get("properties", {}):
            yield f"{where}.{name}: would be left out at times"
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
            yield from breaks(old[key], new[key], old_whole, new_whole, f"{where}[]", depth + 1)
    for one, other in zip(old.get("anyOf", ()), new.get("anyOf", ()), strict=False):
        yield from breaks(one, other, old_whole, new_whole, where, depth + 1)


@pytest.mark.parametrize("name", forms.names())
def test_the_dump_is_what_the_code_says(name: str) -> None:
    schema = published(name)
    Draft202012Validator.check_schema(schema)
    assert kept(name) == json.loads(text_of(schema)), f"{file_of(name).name} is old; python -m tests.unit.test_schema_dump writes it anew"


def test_there_is_a_dump_of_nothing_else() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {"README.md", *(file_of(name).name for name in forms.names())}


@pytest.mark.parametrize("name", forms.names())
def test_every_field_says_what_it_is(name: str) -> None:
    schema = published(name)
    tables = {key for key, value in schema.get("properties", {}).items() if "$ref" in value} if name == forms.CONFIG else set()
    silent = sorted({field for field, words in properties(schema) if not words.get("description") and field not in tables})
    assert not silent, f"{silent}: say it in the type, or in marathond/cli/schema_words.py"


def test_the_version_stands_in_every_schema() -> None:
    for name in forms.names():
        schema = kept(name)
        assert schema["$id"] == f"urn:marathond:schema:{MAJOR}:{name.replace(' ', '-')}"
        assert schema["$comment"].startswith(f"Version {MAJOR}. ") and "none is renamed or removed" in schema["$comment"]


def test_what_breaks_a_reader_is_seen() -> None:
    """A field that goes, changes its type or is left out at times; not one that is added."""
    old = published("status")
    assert list(breaks(old, copy.deepcopy(old))) == []
    added = copy.deepcopy(old)
    added["properties"]["more"] = {"type": "string"}
    assert list(breaks(old, added)) == []
    gone = copy.deepcopy(old)
    del gone["properties"]["campaign"]
    assert list(breaks(old, gone)) == ["$.campaign: would be gone"]
    deep = copy.deepcopy(old)
    deep["$defs"]["Cells"]["properties"]["done"] = {"type": "string"}
    assert list(breaks(old, deep)) == ["$.cells.done: was integer, would be string"]
    nulls = copy.deepcopy(old)
    nulls["properties"]["now_ms"]["type"] = ["integer", "null"]
    assert list(breaks(old, nulls)) == ["$.now_ms: was integer, would be integer, null"]
    cases = {"anyOf": [{"type": "array"}, old], "$defs": old["$defs"]}
    assert list(breaks(old, cases)) == [] and list(breaks(old, {"anyOf": [gone], "$defs": old["$defs"]}))
    rare = copy.deepcopy(old)
    rare["required"].remove("cells")
    assert list(breaks(old, rare)) == ["$.cells: would be left out at times"]


def main(argv: list[str]) -> int:
    """Write the dumps; 1: nothing was written, for a reader would break."""
    new = {name: published(name) for name in forms.names()}
    broken = [f"{name}: {each}" for name, schema in new.items() if (old := kept(name)) is not None for each in breaks(old, schema)]
    same = [name for name in new if (old := kept(name)) is not None and old["$id"] != new[name]["$id"]]
    if broken and "--break" not in argv and not same:
        print("\n".join([*broken, "nothing was written: --break does it all the same; then raise MAJOR in marathond/cli/schema_make.py"]))
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.schema.json"):
        path.unlink()
    for name, schema in new.items():
        file_of(name).write_text(text_of(schema))
    print(f"wrote {len(new)} schemas to {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
