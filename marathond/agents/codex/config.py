"""The config.toml of a trial's codex: written whole, in one place, from the arm's row alone.

Owns every key that is set and what must be read back of it.  Pure text and values; must not know where the file goes.

A bare key after a table's header belongs to that table and is ignored with a warning (fault c02), so the file is made from nested values
by a TOML writer, which puts bare keys first; codex is started with ``--strict-config`` besides.  What is not set here is codex's default,
alike for all arms.  The key to the model is no part of it: codex reads it from the variable :data:`KEY_VARIABLE`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from marathond.core.model import CodexArm
from marathond.core.names import Drive

PROVIDER = "marathond"
KEY_VARIABLE = "MARATHOND_MODEL_KEY"
WEB_SEARCH = "disabled"
EFFECTIVE = (
    "model",
    "model_provider",
    "model_reasoning_effort",
    "approval_policy",
    "sandbox_mode",
    "web_search",
    "model_providers",
    "skills",
)
"""Top-level keys that ``config/read`` must give back as they were written."""


def config(codex: CodexArm, base_url: str, untrusted: Sequence[str]) -> dict[str, Any]:
    """Nested values.

    :param base_url: of the model inside the container.
    :param untrusted: the working directory, and the root of its repository where it has one.  Without an entry codex trusts a folder by
        itself under full access, and a task's own ``.codex/config.toml`` would then choose model and effort (fault a11).
    """
    return {
        "model": codex.model,
        "model_provider": PROVIDER,
        "model_reasoning_effort": codex.effort,
        "approval_policy": "never",
        "sandbox_mode": "danger-full-access",
        "web_search": WEB_SEARCH,
        "model_providers": {
            PROVIDER: {
                "name": PROVIDER,
                "base_url": base_url,
                "env_key": KEY_VARIABLE,
                "wire_api": "responses",
                "requires_openai_auth": False,
                "supports_websockets": False,
                "request_max_retries": codex.request_max_retries,
                "stream_max_retries": codex.stream_max_retries,
                "stream_idle_timeout_ms": codex.stream_idle_timeout_ms,
            }
        },
        "features": features(codex),
        "skills": {"bundled": {"enabled": False}},
        "analytics": {"enabled": False},
        "projects": {path: {"trust_level": "untrusted"} for path in untrusted},
    }


def features(codex: CodexArm) -> dict[str, bool]:
    """The features that are set; all others are codex's defaults.

    ``unbounded_connection_retries`` off: a gateway that is gone for good must fail the turn, not wait out the deadline unseen.  With 8 and
    8 retries a refused connection does so after 517 s, so that a gateway that restarts is waited for.
    """
    return {"goals": codex.drive is Drive.GOAL, "unbounded_connection_retries": False}


def to_toml(values: Mapping[str, Any]) -> str:
    return tomli_w.dumps(values)


def sha256(text: str | bytes) -> str:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()


def differences(expected: Mapping[str, Any], effective: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What of ``expected`` is not so in ``effective``; further keys there are no difference."""
    found: list[str] = []
    for key, value in expected.items():
        has = effective.get(key)
        if isinstance(value, Mapping):
            found += differences(value, has if isinstance(has, Mapping) else {}, f"{prefix}{key}.")
        elif has != value:
            found.append(f"{prefix}{key} is {has!r}, expected {value!r}")
    return found
