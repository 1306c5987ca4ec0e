"""Files of our own that somebody else may have written, or half of it: settings, knobs, the lock, manifests; and Dockerfiles."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.dockerfile import base_images, buildkit_reason
from marathond.core.errors import ConfigError, LedgerRefused, StageError
from marathond.ledger import lock
from marathond.service.knobs import KNOBS, parse_setting
from marathond.service.settings import Settings, load
from marathond.staging import manifest
from marathond.staging.manifest import Manifest, Origin
from marathond.staging.tree import Entry, hashed, survey
from tests.support.fuzzing import ODD, as_toml, few, files_of_json, fuzz, refused_by, spoiled, torn

CONFIG: Mapping[str, Any] = {
    "daemon": {"state_dir": "state"},
    "campaign": {"name": "first", "tasks": ["tasks/*"], "replicates": 2},
    "admission": {"concurrency": 4, "passes": 3, "seed": 1, "reserve_memory_mb": 100},
    "limits": {"agent_timeout_s": 3600.0, "agent_timeout_multiplier": 1.0, "pids": 100},
    "network": {"range": "198.19.0.0/16", "prefix": 28, "cap": 64},
    "money": {"trial_cap_usd": 40, "prices": {"gpt-5.5": {"input": 1.25, "cached_input": 0.125, "output": 10.0}}},
    "arms": {"nop": {"kind": "nop"}, "c": {"kind": "command", "argv": ["true"], "env": {"A": "b"}}},
}
DOCKERFILE = b"""# syntax=docker/dockerfile:1
ARG BASE=debian:12
FROM ${BASE:-x} AS build
RUN --mount=type=cache,target=/c make <<END
a
END
COPY --from=build --chown=1:1 /a /b
FROM $BASE
ONBUILD ADD https://example.org/a.git /x \\
  y
ARG TARGETARCH
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    return tmp_path


def settings_of(base: Path, raw: bytes) -> Any:
    (base / "c.toml").write_bytes(raw)
    return refused_by(lambda: load(Path("c.toml"), environ={"HOME": "/h"}, cwd=base, uid=0), ConfigError)


def test_f05_settings_are_read_or_refused_a_line_for_each(base: Path) -> None:
    assert isinstance(settings_of(base, tomli_w.dumps(CONFIG).encode()), Settings)

    @few
    @given(spoiled(CONFIG, changes=2), st.data())
    def read(document: Any, data: st.DataObject) -> None:
        raw = tomli_w.dumps(as_toml(document)).encode() if isinstance(document, dict) else b"x"
        made = settings_of(base, data.draw(torn(raw, (b"[", b"=", b"'''", b"\xef\xbb\xbf", b"1e400"))) if data.draw(st.booleans()) else raw)
        if isinstance(made, Settings):
            numbers = (made.limits.agent_timeout_multiplier, made.limits.agent_timeout_s or 1.0, float(made.admission.concurrency))
            assert all(math.isfinite(number) and number > 0 for number in numbers)
            assert not isinstance(made.admission.concurrency, bool)
            for price in made.money.prices.values():
                assert all(math.isfinite(each) for each in price.model_dump().values() if isinstance(each, float))
        else:
            assert all(line and line.isprintable() for line in str(made).split("\n"))

    read()


@fuzz
@given(
    st.sampled_from(sorted(KNOBS)),
    st.sampled_from([str(each) for each in ODD if isinstance(each, str | int | float)])
    | st.text(max_size=12)
    | st.integers().map(str)
    | st.floats().map(str),
)
def test_a_knob_is_set_to_a_number_in_its_range_or_refused(key: str, text: str) -> None:
    value = refused_by(lambda: parse_setting(key, text), ConfigError)
    if not isinstance(value, ConfigError):
        assert isinstance(value, str) or (math.isfinite(value) and not isinstance(value, bool))
        assert KNOBS[key].problem(value) is None


def test_f01_a_lock_names_its_holder_or_nobody(base: Path) -> None:
    ledger = base / "ledger.db"
    held = lock.acquire(ledger, pid=7, host="h", now_ms=1_000, start_ticks=5, boot_id="b")
    said = json.loads(lock.lock_path(ledger).read_bytes())
    assert lock.holder(ledger) is not None

    @fuzz
    @given(files_of_json(said))
    def read(data: bytes) -> None:
        lock.lock_path(ledger).write_bytes(data)
        who = lock.holder(ledger)
        if who is not None:
            assert type(who.pid) is int and who.pid == json.loads(data)["pid"] and type(who.since_ms) is int
        with pytest.raises(LedgerRefused, match="in use"):
            lock.acquire(ledger, pid=8, host="h", now_ms=2_000)

    read()
    held.release()


@pytest.mark.parametrize("data", [b"[" * 4096, b'{"pid":1e400,"host":"h","since_ms":1}', b'{"pid":true,"host":"h","since_ms":1}', b"\xff"])
def test_f01_a_lock_that_holds_nonsense_names_nobody(base: Path, data: bytes) -> None:
    lock.lock_path(base / "ledger.db").write_bytes(data)
    assert lock.holder(base / "ledger.db") is None


def test_a18_a_manifest_is_the_one_that_was_written_or_altered(base: Path) -> None:
    source = base / "source"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "codex").write_bytes(b"x")
    entries = tuple(hashed(source, entry, lambda _: None) for entry in survey(source))
    whole = Manifest("codex", "0.171.0", entries, (Origin("folder /opt/codex", "sha256-ab", ("a",)),))
    package = base / whole.package_id
    package.mkdir()
    manifest.write(package, whole)
    assert manifest.read(package) == whole
    document = json.loads((package / manifest.NAME).read_bytes())

    @fuzz
    @given(files_of_json(document))
    def read(data: bytes) -> None:
        (package / manifest.NAME).write_bytes(data)
        found = refused_by(lambda: manifest.read(package), StageError)
        if isinstance(found, StageError):
            assert found.code == "altered"
        else:
            assert found.tree_sha256 == whole.tree_sha256 and all(isinstance(each, Entry) for each in found.entries)

    read()
    shutil.rmtree(package)


@fuzz
@given(torn(DOCKERFILE * 2, (b"FROM ", b"COPY --from=", b"<<END\n", b"${", b"\\\n", b"# escape=`\n", b"ARG ")))
def test_a_dockerfile_of_any_kind_has_an_answer(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    reason, images = buildkit_reason(text), base_images(text, {"BASE": "debian:12"})
    assert "\n" not in reason and len(images) == len(set(images)) <= text.upper().count("FROM") + 1


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000, "1e400", "nan", "-inf", "²"])
def test_a_knob_of_any_kind_refuses_what_is_no_number(text: str) -> None:
    for key, knob in KNOBS.items():
        if not knob.choices:
            with pytest.raises(ConfigError):
                parse_setting(key, text)
