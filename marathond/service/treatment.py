"""What defines the treatment, and its fingerprint (fault a18: something that matters is changed in mid-campaign).

Owns which keys are treatment, and their canonical form.  Pure: settings in, dict and hash out.  Must not know the ledger or when the
hash is compared.  Five ways in which a key may change:

* ``treatment``: needs a new campaign.  It decides what an agent gets or how it is judged.
* ``live``: reloads while running (:mod:`marathond.service.knobs`).  It decides when a trial runs, never what runs.
* ``reload``: read again by a reload or ``marathonctl submit``.  Where a provider is, not what is asked of it; and where a number stands in
  a verifier's files (``[scores]``): an agent sees nothing of it, stored files can be graded again, and each score keeps its rules.
  What will be compared (``[comparison]``), too: each declaration is kept, with how many scores were known by then.
* ``restart``: fixed until the daemon restarts; where things lie, which engine, how it logs, deadlines of our own plumbing.
* ``extent``: which cells there are; grows by ``marathonctl submit``, each arm and task carrying its own fingerprint.

``network.mode`` and its subnets are ``restart``: a trial's network policy comes from its task, not from where its subnet was found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from marathond.core.arms import codex_to_data
from marathond.core.canonical import canonical_json
from marathond.core.model import Arm
from marathond.core.proxies import proxy_words
from marathond.service.knobs import KNOBS

if TYPE_CHECKING:
    from marathond.service.settings import Settings

TREATMENT_FORMAT = 1
"""Number of this module's canonical form; a change of form is a change of treatment and must say so."""

PROXY_BUILD_ARGS = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
"""Build arguments (in any case) that say how a build reaches the world, not what it builds."""

TREATMENT_KEYS = frozenset(
    {
        "limits.agent_timeout_s",
        "limits.agent_timeout_multiplier",
        "limits.verifier_timeout_multiplier",
        "limits.after_agent",
        "limits.pids",
        "verifier.exclusive",
        "verifier.exclusive_from",
        "engine.build_args",
        "network.runtime_proxy",
        "network.undeclared",
        "campaign.benchmark",
        "gateway.strip",
        "gateway.hold_s",
        "gateway.held_is_charged",
        "gateway.held_at_most_s",
        "money.trial_cap_usd",
    }
)

RELOAD_KEYS = frozenset({"gateway.routes", "comparison.contrasts"})

EXTENT_KEYS = frozenset({f"campaign.{key}" for key in ("name", "tasks", "include", "exclude", "arms", "replicates", "digests")})


class Change(StrEnum):
    """How a key may change; see the module's head."""

    TREATMENT = "treatment"
    LIVE = "live"
    RELOAD = "reload"
    RESTART = "restart"
    EXTENT = "extent"


def change_of(key: str) -> Change:
    """By dotted key (``admission.concurrency``); everything below ``arms.``, ``codex.`` and ``loopx.`` is treatment."""
    if key in TREATMENT_KEYS or key.startswith(("arms.", "codex.", "loopx.")):
        return Change.TREATMENT
    if key in KNOBS:
        return Change.LIVE
    if key in RELOAD_KEYS or key.startswith("scores."):
        return Change.RELOAD
    return Change.EXTENT if key in EXTENT_KEYS else Change.RESTART


def needs_restart(began: Settings, now: Settings) -> tuple[str, ...]:
    """Dotted keys that differ and count only from the next start, in the order of the configuration."""
    found = []
    for section in ("daemon", "engine", "network", "limits", "gateway", "money", "notify", "page"):
        for key in type(getattr(began, section)).model_fields:
            dotted = f"{section}.{key}"
            # Build arguments that are treatment would have been refused: what differs are proxies, which the next start takes.
            if change_of(dotted) is Change.RESTART or dotted == "engine.build_args":
                found += [dotted] if getattr(getattr(began, section), key) != getattr(getattr(now, section), key) else []
    if bool(began.gateway.routes) != bool(now.gateway.routes):
        found.append("gateway.routes")  # a life that began without a gateway has nobody to tell
    return tuple(found)


def campaign_treatment(settings: Settings) -> dict[str, Any]:
    """What all cells of a campaign share: limits, multipliers, after-agent policy, build arguments that are no proxy, the runtime proxy.

    No limit of processes, and no verifier that runs alone, has the form, and the hash, of campaigns from before there was one.
    A benchmark's profile stands there by name and digest, what it sets by its effective value.
    A proxy's user and password are how one gets there, not where: they may change.
    """
    limits = settings.limits
    return {
        "format": TREATMENT_FORMAT,
        "agent_timeout_s": limits.agent_timeout_s,
        "agent_timeout_multiplier": limits.agent_timeout_multiplier,
        "verifier_timeout_multiplier": limits.verifier_timeout_multiplier,
        "after_agent": limits.after_agent.value,
        "build_args": {name: value for name, value in settings.engine.build_args.items() if name.lower() not in PROXY_BUILD_ARGS},
        **({"pids": limits.pids} if limits.pids else {}),
        **({"exclusive_verifier": exclusive} if (exclusive := _exclusive(settings)) else {}),
        **({"undeclared_network": undeclared} if (undeclared := settings.network.undeclared) != "public" else {}),
        **({"benchmark": settings.benchmark.treatment()} if settings.benchmark is not None else {}),
        **({"runtime_proxy": proxy_words(proxy)} if (proxy := settings.network.runtime_proxy) else {}),
    } | (_model_treatment(settings) if settings.drives_codex else {})


def _exclusive(settings: Settings) -> dict[str, Any]:
    """Whose verifier runs alone, and from what; nothing where none does, as in campaigns from before there was such a thing."""
    verifier = settings.verifier
    return {"tasks": sorted(verifier.exclusive), "from": verifier.exclusive_from} if verifier.exclusive else {}


def _model_treatment(settings: Settings) -> dict[str, Any]:
    """Only where a model takes part: other campaigns keep the form, and the hash, that they have always had."""
    gateway = {key: getattr(settings.gateway, key) for key in ("strip", "hold_s", "held_is_charged", "held_at_most_s")}
    return {"gateway": gateway, "trial_cap_usd": settings.money.trial_cap_usd}


def arm_treatment(arm: Arm) -> dict[str, Any]:
    """All of an arm but its name: renaming it changes nothing that an agent sees."""
    return {
        "format": TREATMENT_FORMAT,
        "kind": arm.kind.value,
        "argv": list(arm.argv),
        "env": dict(arm.env),
        "user": arm.user,
        "cwd": arm.cwd,
        "mounts": [{"source": mount.source, "target": mount.target, "read_only": mount.read_only} for mount in arm.mounts],
        "install_check": list(arm.install_check),
        "after_agent": arm.after_agent.value,
        "codex": None if arm.codex is None else codex_to_data(arm.codex),
    }


def treatment_hash(treatment: Mapping[str, Any]) -> str:
    """``sha256:…`` over :func:`canonical_json`."""
    return "sha256:" + hashlib.sha256(canonical_json(treatment).encode()).hexdigest()
