"""What ``status`` says of money and of the way to the provider.

Owns both lines' facts.  Caps are the daemon's word, given once in each of its lives; what was spent is the ledger's; the provider's load is
the gateway's, and unknown once its sign of life is old.  Must stay light, see :mod:`marathond.service.picture.reader`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.core.money import Expected, Forecast, Rules, Sample, Spent, Work
from marathond.ledger.verbs.settings import Observation
from marathond.ledger.verbs.status import ArmCounts, LiveTrial
from marathond.ledger.verbs.unpriced import unpriced

ALIVE_MS = 30_000
"""Older than this the gateway's sign of life says nothing about now."""

OWN_ROUTE = "gate"
"""The gates' answers are our own: no provider is behind that route."""

_ANY_TASK = 0


@dataclass(frozen=True, slots=True)
class Money:
    """Nano-dollars.  ``spent_nusd``: known costs, those of voids (``voids_nusd``) among them.

    ``cut_nusd``: what ``cut`` requests of unknown usage cost if they were like the others; None: nothing to go by.  ``unpriced``: model
    without a price → its requests; then what was spent is unknown beyond ``spent_nusd``.  ``forecast_nusd``: of the whole campaign, with
    what was spent; None: unknown, and ``basis`` says why.
    """

    spent_nusd: int
    voids_nusd: int
    cut: int
    cut_nusd: int | None
    unpriced: dict[str, int]
    forecast_nusd: int | None
    basis: str
    campaign_cap_nusd: int | None
    trial_cap_nusd: int | None


def gather_money(
    c: sqlite3.Connection, campaign_id: int, arms: Sequence[ArmCounts], live: Sequence[LiveTrial], said: Observation | None
) -> Money | None:
    """None: nothing was spent, and nobody asked for a cap or gave a price.

    ``said``: the daemon's word on the caps, from whichever of its lives.
    """
    caps = said.value if said is not None and isinstance(said.value, dict) else {}
    valid, voids = sum(arm.valid_nusd for arm in arms), sum(arm.voids_nusd for arm in arms)
    priced, cut = sum(arm.priced for arm in arms), sum(arm.cut for arm in arms)
    spent = Spent(valid, voids, priced, cut, unpriced(c, campaign_id))
    if not (spent.known_nusd or cut or spent.unpriced or caps.get("models") or _amount(caps, "campaign_cap_nusd")):
        return None
    rules = Rules({}, *(_amount(caps, f"{key}_nusd") for key in ("campaign_cap", "trial_cap", "expected_trial")))
    expected = _forecast(arms, live, rules)
    rest = None if spent.unpriced or spent.cut_nusd is None else expected.nusd
    return Money(
        spent_nusd=spent.known_nusd,
        voids_nusd=voids,
        cut=cut,
        cut_nusd=spent.cut_nusd,
        unpriced=dict(spent.unpriced),
        forecast_nusd=None if rest is None else spent.known_nusd + (spent.cut_nusd or 0) + rest,
        basis="some of what was spent is unknown" if rest is None and expected.nusd is not None else expected.basis,
        campaign_cap_nusd=rules.campaign_cap_nusd,
        trial_cap_nusd=rules.trial_cap_nusd,
    )


def _forecast(arms: Sequence[ArmCounts], live: Sequence[LiveTrial], rules: Rules) -> Expected:
    """By arm over all tasks, from the sums that are read anyway."""
    samples = [Sample(_ANY_TASK + 1, arm.arm_id, arm.ended_nusd, arm.ended) for arm in arms if arm.ended]
    ids = {arm.arm: arm.arm_id for arm in arms}
    works = [Work(_ANY_TASK, arm.arm_id, arm.open) for arm in arms if arm.open]
    works += [Work(_ANY_TASK, ids[trial.arm], 1, trial.cost_nusd) for trial in live]
    return Forecast(samples, rules, [arm.arm_id for arm in arms if arm.asks_model]).of(works)


def _amount(caps: dict[str, Any], key: str) -> int | None:
    value = caps.get(key)
    return value if isinstance(value, int) else None


# ── the way to the provider ──


@dataclass(frozen=True, slots=True)
class RouteLoad:
    """``tokens``: used of the running minute, ``tokens_per_min`` the limit; both None: the route has none."""

    route: str
    waiting: int
    tokens: int | None
    tokens_per_min: int | None


@dataclass(frozen=True, slots=True)
class Provider:
    """``routes`` None: the gateway gives no sign of life, ``why`` says since when."""

    streams: int
    routes: list[RouteLoad] | None
    why: str = ""


def gather_provider(folder: Path) -> Provider | None:
    """What the gateway told last; None: there never was one."""
    try:
        told = json.loads((folder / "alive.json").read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return Provider(0, None, f"its sign of life cannot be read: {error}")
    at_ms = told.get("mono_ms") if isinstance(told, dict) else None
    if not isinstance(at_ms, int):
        return Provider(0, None, "its sign of life cannot be read")
    age_ms = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000 - at_ms
    if told.get("boot_id") != _boot_id():
        return Provider(0, None, "no sign of life since the host was started")
    if not 0 <= age_ms <= ALIVE_MS:
        return Provider(0, None, f"no sign of life for {age_ms // 1000} s")
    waiting, tokens = (told.get(key) if isinstance(told.get(key), dict) else {} for key in ("waiting", "tokens_per_min"))
    routes = [_load(name, count, tokens.get(name)) for name, count in sorted(waiting.items()) if name != OWN_ROUTE]
    streams = told.get("streams")
    return Provider(streams if isinstance(streams, int) else 0, routes)


def _load(name: str, waiting: Any, tokens: Any) -> RouteLoad:
    known = isinstance(tokens, list) and len(tokens) == 2 and all(isinstance(each, int) for each in tokens)
    used, limit = tokens if known else (None, None)
    return RouteLoad(name, waiting if isinstance(waiting, int) else 0, used, limit)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
