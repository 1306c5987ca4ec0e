"""Money, tokens and the provider's load in words, for ``status``, ``show`` and ``plan``.

Owns the wording.  What is unknown says so; it is never shown as 0.
"""

from __future__ import annotations

from marathond.core.money import dollars
from marathond.core.text import UNKNOWN, clean, plural
from marathond.service.picture.money import Money, Provider

MODELS_SHOWN = 3


def money_parts(money: Money) -> list[str]:
    """``spent $4,112 (voids $31)``, ``forecast $9,800 (…)``, ``cap $10,000 (41 %)``."""
    known = f"spent {'at least ' if money.unpriced else ''}{dollars(money.spent_nusd)} (voids {dollars(money.voids_nusd)})"
    parts = [known + cut_words(money.cut, money.cut_nusd) + unpriced_words(money.unpriced)]
    forecast = UNKNOWN if money.forecast_nusd is None else dollars(money.forecast_nusd)
    parts.append(f"forecast {forecast} ({clean(money.basis)})")
    if money.campaign_cap_nusd is not None:
        share = f" ({100 * money.spent_nusd // money.campaign_cap_nusd} %)" if money.campaign_cap_nusd else ""
        parts.append(f"cap {dollars(money.campaign_cap_nusd)}{share}")
    return parts


def cut_words(cut: int, cut_nusd: int | None) -> str:
    """`` + ~$0.30 for 5 cut requests``; empty when none was cut."""
    if not cut:
        return ""
    return f" + {UNKNOWN if cut_nusd is None else f'~{dollars(cut_nusd)}'} for {plural(cut, 'cut request')}"


def unpriced_words(unpriced: dict[str, int]) -> str:
    """`` + unknown for 3 requests (no price for x)``; empty when everything has a price."""
    if not unpriced:
        return ""
    names = [clean(name, 60) or "a model that was not named" for name in unpriced]
    more = f" and {len(names) - MODELS_SHOWN} more" if len(names) > MODELS_SHOWN else ""
    return f" + {UNKNOWN} for {plural(sum(unpriced.values()), 'request')} (no price for {', '.join(names[:MODELS_SHOWN])}{more})"


def provider_parts(provider: Provider | None) -> list[str]:
    """``provider 410k/600k tok/min, 0 waiting``; a part per route where there are several."""
    if provider is None:
        return []
    if provider.routes is None:
        return [f"provider {UNKNOWN} (gateway: {clean(provider.why)})"]
    parts = []
    for route in provider.routes:
        name = f" {clean(route.route)}" if len(provider.routes) > 1 else ""
        load = "" if route.tokens is None else f"{short_count(route.tokens)}/{short_count(route.tokens_per_min)} tok/min, "
        parts.append(f"provider{name} {load}{route.waiting} waiting")
    return [", ".join([*parts, plural(provider.streams, "stream")])]


def short_count(count: int | None) -> str:
    """``12.4M``, ``410k``, ``950``; ``-`` for nothing."""
    if count is None:
        return "-"
    for unit, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if abs(count) >= unit:
            amount = count / unit
            return f"{amount:.1f}{letter}" if abs(amount) < 100 else f"{amount:.0f}{letter}"
    return str(count)
