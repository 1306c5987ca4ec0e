"""What defines the treatment, and its fingerprint."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.canonical import canonical_json
from marathond.core.model import Arm, CodexArm, Mount
from marathond.core.names import AfterAgent, AgentKind
from marathond.service.knobs import KNOBS
from marathond.service.settings import Settings, load, origins
from marathond.service.treatment import (
    EXTENT_KEYS,
    RELOAD_KEYS,
    TREATMENT_KEYS,
    Change,
    arm_treatment,
    campaign_treatment,
    change_of,
    needs_restart,
    treatment_hash,
)

CONFIG = '[campaign]\nname = "c"\ntasks = ["t"]\n[arms.nop]\nkind = "nop"\n'
CODEX_CONFIG = (
    CONFIG
    + """[arms.plain]
kind = "codex"
drive = "turn"
[codex]
model = "gpt-6.2-sol"
[gateway.routes.main]
base_url = "http://127.0.0.1:1/v1"
key_file = "/k"
[money]
expected_trial_usd = 1.0
prices = { "gpt-6.2-sol" = { input = 1.0, output = 1.0 } }
"""
)
ARM = Arm("mine", AgentKind.COMMAND, ("sh",), {"A": "1"}, "root", "/app", (Mount("/s", "/t"),), ("true",))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "c.toml"
    path.write_text(CONFIG)
    return path


def _with(config: Path, **overrides: object) -> Settings:
    return load(config, {key.replace("__", "."): value for key, value in overrides.items()}, environ={}, uid=0)


def _hash(settings: Settings) -> str:
    return treatment_hash(campaign_treatment(settings))


OTHER: dict[str, object] = {
    "limits.agent_timeout_s": 5340,
    "limits.agent_timeout_multiplier": 2,
    "limits.verifier_timeout_multiplier": 4,
    "limits.after_agent": "kill-all",
    "limits.pids": 0,
    "verifier.exclusive": ["t1"],
    "engine.build_args": {"VERSION": "2"},
    "network.runtime_proxy": {"HTTP_PROXY": "http://proxy:3128"},
    "network.undeclared": "no-network",
    "campaign.benchmark": "harbor",
    "campaign.digests": "/digests.toml",
    "limits.build_timeout_multiplier": 3,
    "gateway.strip": ["a.b"],
    "gateway.hold_s": 10,
    "gateway.held_is_charged": True,
    "gateway.held_at_most_s": 10,
    "money.trial_cap_usd": 40,
    "gateway.port": 9000,
    "money.campaign_cap_usd": 4000,
    "notify.no_score_hours": 1,
    "daemon.state_dir": "/other",
    "daemon.log_level": "debug",
    "engine.url": "tcp://other:1",
    "engine.call_timeout_s": 31,
    "network.mode": "auto",
    "network.range": "10.0.0.0/16",
    "network.cap": 12,
    "admission.concurrency": 12,
    "admission.order": "arm-major",
    "admission.expected": "declared",
    "admission.seed": 9,
    "admission.passes": 9,
    "limits.gate_timeout_s": 61,
    "campaign.replicates": 5,
    "campaign.exclude": ["t1"],
}


def test_a18_from_what_a_verifier_is_alone_is_treatment_where_one_is(config: Path) -> None:
    """Elsewhere it says nothing, and campaigns from before there was such a thing keep their hash."""
    config.write_text(CODEX_CONFIG)
    plain, other = _with(config), _with(config, verifier__exclusive_from="everything")
    assert _hash(plain) == _hash(other) and "exclusive_verifier" not in campaign_treatment(plain)
    one, two = (_with(config, verifier__exclusive=["b", "a"], verifier__exclusive_from=wanted) for wanted in ("verifiers", "everything"))
    assert campaign_treatment(one)["exclusive_verifier"] == {"tasks": ["a", "b"], "from": "verifiers"}
    assert change_of("verifier.exclusive_from") is Change.TREATMENT and len({_hash(plain), _hash(one), _hash(two)}) == 3


@pytest.mark.parametrize("key", OTHER)
def test_a18_the_campaigns_hash_changes_with_the_treatment_and_with_nothing_else(config: Path, key: str) -> None:
    config.write_text(CODEX_CONFIG)
    before = _with(config)
    after = load(config, {key: OTHER[key]}, environ={}, uid=0)
    assert origins(after)[key][0] != origins(before)[key][0]
    assert (_hash(after) != _hash(before)) == (change_of(key) is Change.TREATMENT)


def test_every_treatment_key_is_tried_above() -> None:
    assert {*OTHER, "verifier.exclusive_from"} >= TREATMENT_KEYS


def test_every_key_changes_in_exactly_one_way(config: Path) -> None:
    keys = set(origins(_with(config)))
    assert keys >= TREATMENT_KEYS | EXTENT_KEYS | set(KNOBS)
    assert not (TREATMENT_KEYS & EXTENT_KEYS) | (TREATMENT_KEYS & set(KNOBS)) | (EXTENT_KEYS & set(KNOBS))
    kinds = {key: change_of(key) for key in keys}
    assert {key for key, kind in kinds.items() if kind is Change.LIVE} == set(KNOBS)
    assert {key.partition(".")[0] for key, kind in kinds.items() if kind is Change.RESTART} == {
        *("daemon", "engine", "network", "limits"),
        *("gateway", "money", "notify", "page"),
    }
    assert {key for key, kind in kinds.items() if kind is Change.RELOAD} == RELOAD_KEYS
    assert kinds["arms.nop.kind"] is Change.TREATMENT


def test_routes_are_told_to_the_gateway_by_a_reload(config: Path) -> None:
    routes = [{name: {"base_url": f"https://{name}.example/v1", "key_file": "/k"}} for name in ("one", "other")]
    first, second = (_with(config, gateway__routes=each) for each in routes)
    assert needs_restart(first, second) == ()
    assert needs_restart(_with(config), second) == ("gateway.routes",)


def test_a_proxy_for_builds_is_no_treatment(config: Path) -> None:
    proxied = _with(config, engine__build_args={"HTTP_PROXY": "http://p:1", "no_proxy": "x"})
    assert _hash(proxied) == _hash(_with(config))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": AgentKind.ORACLE},
        {"argv": ("sh", "-x")},
        {"env": {"A": "2"}},
        {"env": {}},
        {"user": None},
        {"cwd": None},
        {"mounts": (Mount("/s", "/t", read_only=False),)},
        {"mounts": (Mount("/s2", "/t"),)},
        {"mounts": ()},
        {"install_check": ()},
        {"after_agent": AfterAgent.KILL_ALL},
        {"codex": CodexArm("codex-0.171.0-1", "0.171.0", "gpt-6.2-sol", "high")},
    ],
    ids=str,
)
def test_a18_everything_of_an_arm_is_treatment(change: dict[str, object]) -> None:
    other = dataclasses.replace(ARM, **change)  # type: ignore[arg-type]
    assert treatment_hash(arm_treatment(other)) != treatment_hash(arm_treatment(ARM))


def test_an_arms_name_is_no_treatment_and_every_other_field_is() -> None:
    assert treatment_hash(arm_treatment(dataclasses.replace(ARM, name="renamed"))) == treatment_hash(arm_treatment(ARM))
    assert set(arm_treatment(ARM)) - {"format"} == {field.name for field in dataclasses.fields(Arm)} - {"name"}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé", max_size=2), inner, max_size=3),
    max_leaves=6,
)
TREATMENTS = st.dictionaries(st.text("abé", max_size=2), PLAIN, max_size=4)


@given(TREATMENTS, st.randoms(use_true_random=False))
def test_the_canonical_form_does_not_depend_on_the_order_of_keys(one: dict[str, object], random: object) -> None:
    items = list(one.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert canonical_json(dict(items)) == canonical_json(one)


def test_the_canonical_form_never_changes_between_versions(config: Path) -> None:
    """A campaign in a ledger outlives an upgrade: a changed form would refuse it."""
    assert canonical_json(campaign_treatment(_with(config, limits__agent_timeout_s=5340.5, limits__pids=0))) == (
        '{"after_agent":"keep-detached","agent_timeout_multiplier":1,"agent_timeout_s":5340.5,"build_args":{},"format":1,'
        '"verifier_timeout_multiplier":1}'
    )
    assert campaign_treatment(_with(config))["pids"] == 16384
    assert _hash(_with(config, limits__pids=0)) == "sha256:de4e8b3b11e0cb557cb5396078369581889035d3d0db57c5bfa4796e5ee92043"
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("nan")})


def test_what_only_a_restart_changes_is_named_in_the_order_of_the_configuration(config: Path) -> None:
    began = _with(config)
    assert needs_restart(began, began) == ()
    changed = {"network__range": "198.18.0.0/16", "network__cap": 3, "engine__url": "tcp://h:1", "admission__concurrency": 2}
    changed |= {"engine__build_args": {"HTTP_PROXY": "http://p:1"}, "daemon__log_level": "debug", "limits__gate_timeout_s": 5.0}
    keys = ("daemon.log_level", "engine.url", "engine.build_args", "network.range", "limits.gate_timeout_s")
    assert needs_restart(began, _with(config, **changed)) == keys
