"""What both kinds of documents are put together from: arms in Harbor's words, rows by name, bytes.

Owns the encoding.  Must not know trials or campaigns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from marathond.core.text import iso_utc
from marathond.tasks.layout.views import ArmView, UsageView


def agent_info(arm: ArmView) -> dict[str, Any]:
    """Harbor's AgentInfo.  Its name is the arm's: arms that differ only in their settings would become one agent.

    The treatment's hash is the version: an arm is data, and nothing else tells two states of it apart.
    """
    return {"name": arm.name, "version": arm.treatment_hash[:12], "model_info": model_info(arm.model)}


def model_info(model: str | None) -> dict[str, Any] | None:
    """Harbor's ModelInfo of ``provider/name`` or a bare name."""
    if not model:
        return None
    provider, slash, name = model.partition("/")
    return {"name": name, "provider": provider} if slash else {"name": model, "provider": None}


def agent_config(arm: ArmView) -> dict[str, Any]:
    """Harbor's AgentConfig, with what makes the arm under ``kwargs``."""
    return {"name": arm.name, "model_name": arm.model, "kwargs": _settings(arm)}


def arm_facts(arm: ArmView) -> dict[str, Any]:
    """The arm's identity in our own words."""
    return {"name": arm.name, "kind": arm.kind, "treatment_hash": arm.treatment_hash}


def _settings(arm: ArmView) -> dict[str, Any]:
    """The arm's data.  Of its environment only the names: values may be secrets, and out_dir is there to be shared."""
    data = {key: value for key, value in arm.data.items() if key not in ("name", "env")}
    return {**data, "env": sorted(arm.data.get("env", {}))}


def token_counts(usage: Sequence[UsageView]) -> dict[str, Any]:
    """Harbor's token counts; its cost where all of it is known."""
    costs = [row.cost_usd for row in usage]
    return {
        "n_input_tokens": sum(row.input_tokens for row in usage),
        "n_cache_tokens": sum(row.cached_tokens for row in usage),
        "n_output_tokens": sum(row.output_tokens for row in usage),
        "cost_usd": None if None in costs else math.fsum(cost for cost in costs if cost is not None),
    }


def iso(ms: int | None) -> str | None:
    """An instant as text, or None."""
    return None if ms is None else iso_utc(ms)


def row(value: Any) -> Any:
    """A view by its fields' names, instants as text; None stays None."""
    if value is None:
        return None
    pairs = ((field.name, getattr(value, field.name)) for field in fields(value))
    return dict((name.removesuffix("_ms"), iso(v)) if name == "at_ms" or name.endswith("_at_ms") else (name, v) for name, v in pairs)


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """Keys sorted; ASCII only, so that no text from an agent can steer the terminal in which somebody reads the file."""
    return json.dumps(plain(document), sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False).encode() + b"\n"


def plain(value: Any) -> Any:
    """What strict JSON can hold: halves of surrogate pairs become U+FFFD, numbers that are not finite become text."""
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case float() if not math.isfinite(value):
            return str(value)
        case Mapping():
            return {plain(str(key)): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value
