"""What the settings mean for the flow: plain values, fixed for one life or turned while it runs.

Owns the mapping from sections and knobs to what :mod:`marathond.flow.world` takes.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from marathond.core import money
from marathond.core.judge import seen_by_tasks
from marathond.core.order import Expected
from marathond.core.plan import Limits
from marathond.core.score import Overrides, rules_from_data
from marathond.flow.world import Fixed, Knobs, Ways
from marathond.service.knobs import KNOBS, KnobValue
from marathond.service.sections_model import GATE_ROUTE
from marathond.service.settings import Settings


def knobs_from(values: Mapping[str, Any]) -> Knobs:
    """Effective operational knobs by dotted key."""

    def get(name: str) -> Any:
        return values[f"admission.{name}"]

    limits = Limits(
        concurrency=get("concurrency"),
        cpu_overcommit=get("cpu_overcommit"),
        memory_overcommit=get("memory_overcommit"),
        reserve_cpus=get("reserve_cpus"),
        reserve_memory_mb=get("reserve_memory_mb"),
        undeclared_cpus=get("undeclared_cpus"),
        undeclared_memory_mb=get("undeclared_memory_mb"),
    )
    return Knobs(
        limits=limits,
        network_cap=values["network.cap"],
        network_margin=values["network.margin"],
        passes=get("passes"),
        breaker_after=get("breaker_after"),
        breaker_pause_s=get("breaker_pause_s"),
        disk_floor_percent=get("disk_floor_percent"),
        disk_floor_bytes=int(get("disk_floor_gb") * (1 << 30)),
        expected=Expected(get("expected")),
    )


def configured_knobs(settings: Settings) -> dict[str, KnobValue]:
    """Dotted key to the configuration's value, of every knob."""
    return {key: _plain(settings, key) for key in KNOBS}


def with_knobs(settings: Settings, values: Mapping[str, KnobValue]) -> Settings:
    """``settings`` with these knobs in place of its own, for commands that look ahead; ``values``: dotted key to value, as set."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        own = getattr(getattr(settings, section), name)
        sections.setdefault(section, {})[name] = type(own)(value) if isinstance(own, Enum) else value
    return settings.model_copy(update={name: getattr(settings, name).model_copy(update=keys) for name, keys in sections.items()})


def score_rules(s: Settings) -> dict[str, Overrides]:
    """Task → its rules, of the tasks that have any."""
    return dict(rules_from_data({task: table.model_dump() for task, table in s.scores.items()}))


def gateway_folder(s: Settings) -> Path:
    """Where daemon and gateway meet: gateway.json, listeners, acks, the journal."""
    return s.daemon.state_dir / "gateway"


def ways(s: Settings) -> Ways | None:
    """None: the campaign needs no model."""
    if not s.gateway.routes:
        return None
    return Ways(
        folder=gateway_folder(s),
        port=s.gateway.port,
        route=s.gateway.agents_route,
        gate_route=GATE_ROUTE,
        verifier_route=s.gateway.verifier_route,
        verifier_env=dict(s.gateway.verifier_env),
        strip=s.gateway.strip,
        held_at_most_ms=0 if s.gateway.held_is_charged else int(s.gateway.held_at_most_s * 1000),
    )


def money_rules(s: Settings) -> money.Rules:
    """Prices and caps in nano-dollars.  A kind of input token without a price of its own costs what plain input costs."""

    def amount(dollars: float | None, otherwise: float = 0) -> int:
        return money.nusd(otherwise if dollars is None else dollars)

    def cap(dollars: float | None) -> int | None:
        return None if dollars is None else money.nusd(dollars)

    prices = {
        model: money.Price(amount(p.input), amount(p.cached_input, p.input), amount(p.cache_write, p.input), amount(p.output))
        for model, p in s.money.prices.items()
    }
    return money.Rules(prices, cap(s.money.campaign_cap_usd), cap(s.money.trial_cap_usd), cap(s.money.expected_trial_usd))


def fixed(s: Settings, ledger_id: str, campaign_id: int, environ: Mapping[str, str], staged: Mapping[str, Path]) -> Fixed:
    """What stays the same for one daemon life.  ``staged``: package id to its tree."""
    return Fixed(
        ledger_id=ledger_id,
        engine_name=s.engine.name,
        campaign_id=campaign_id,
        campaign=s.campaign.name,
        run_root=s.daemon.state_dir / "r",
        out_dir=s.daemon.out_dir,
        network_mode=s.network.mode,
        network_range=s.network.range,
        network_prefix=s.network.prefix,
        runtime_proxy=dict(s.network.runtime_proxy),
        own_limit_s=s.limits.agent_timeout_s,
        agent_multiplier=s.limits.agent_timeout_multiplier,
        gate_timeout_s=s.limits.gate_timeout_s,
        environ=seen_by_tasks(environ, s.gateway.verifier_env),
        build_args=dict(s.engine.build_args),
        build_network=s.engine.build_network,
        build_concurrency=s.engine.build_concurrency,
        build_retries=s.engine.build_retries,
        pull_timeout_s=s.engine.pull_timeout_s,
        max_artifact_bytes=s.limits.artifact_max_mb << 20,
        max_artifact_files=s.limits.artifact_max_files,
        staged=dict(staged),
        gateway=ways(s),
        undeclared_network=s.undeclared_network,
        build_multiplier=s.limits.build_timeout_multiplier,
        pids=s.limits.pids or None,
        trial_cap_nusd=money_rules(s).trial_cap_nusd,
        money=money_rules(s),
    )


def _plain(settings: Settings, key: str) -> Any:
    section, _, name = key.partition(".")
    value = getattr(getattr(settings, section), name)
    return value.value if isinstance(value, Enum) else value
