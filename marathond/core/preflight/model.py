"""Rows about the way to the model, its key and price, the judge, and who is told.

Owns what an answer to ``GET /models`` proves.  Nothing here ever holds a key or a value of the environment: only whether there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from marathond.core.preflight.rows import Row, count, named, not_needed, ok, red, unknown, warn

BILLED = "cannot tell without a billed request"
_REFUSED = frozenset({401, 402, 403})
_NO_SUCH = frozenset({404, 405, 501})
_PROXY_LOGIN = 407
_SLOW_DOWN = 429


@dataclass(frozen=True, slots=True)
class Asked:
    """``GET /models`` over a route.  ``status`` None: no answer, and ``why`` says how far it came.  ``models``: ids that a 2xx answer
    listed, None when it was no such list.  ``with_key``: the real key was sent."""

    address: str
    proxy: str
    status: int | None
    why: str
    took_ms: int
    models: frozenset[str] | None = None
    with_key: bool = True


def provider(route: str, asked: Asked) -> Row:
    """Whether the way out works, whatever the provider thinks of the key."""
    way = f"{asked.address}{f' through {asked.proxy}' if asked.proxy else ''}"
    if asked.status is None:
        proxy = "the proxy (host_proxy), " if asked.proxy else ""
        return red("provider", f"{way}: {asked.why}", f"look at {proxy}name, address, firewall and certificates of the route", route)
    if asked.status == _PROXY_LOGIN:
        return red("provider", f"{way}: the proxy wants a login (HTTP 407)", "put user and password into the route's host_proxy", route)
    if asked.status >= 500:
        return warn("provider", f"{way}: answers HTTP {asked.status}", "it is reached, and not well: ask again in a while", route)
    return ok("provider", f"{way}: answers (HTTP {asked.status}, {asked.took_ms} ms)", route)


def provider_key(route: str, problem: str, asked: Asked | None, model: str | None) -> Row:
    """:param problem: why there is no key to send; empty when it was sent.  ``model``: the arms' own, where this route is theirs."""
    if problem:
        return red("provider_key", problem, "put the key there: one line, readable by the gateway's user", route)
    if asked is None or asked.status is None:
        return unknown("provider_key", "the provider was not reached", "mend the way first", route)
    status = asked.status
    if status in _REFUSED:
        return red("provider_key", f"refused: HTTP {status}", "replace the key, or look at its account and rights", route)
    if status in _NO_SUCH:
        return unknown("provider_key", f"{BILLED}: no list of models there (HTTP {status})", "try it: marathonctl canary", route)
    if status == _SLOW_DOWN:
        return unknown("provider_key", "asked too often (HTTP 429)", "ask again in a while", route)
    if not 200 <= status < 300:
        return unknown("provider_key", f"{BILLED}: HTTP {status}", "look at the route's base_url", route)
    if asked.models is None:
        return unknown("provider_key", f"HTTP {status}, but no list of models", "does something else answer at base_url?", route)
    if model is not None and asked.models and model not in asked.models:
        return warn("provider_key", f"accepted, but {model} is not among its {len(asked.models)} models", "look at codex.model", route)
    return ok("provider_key", f"accepted ({count(len(asked.models), 'model')} listed)", route)


def key_elsewhere(route: str, credential: str, gateway: str) -> Row:
    """The key lies where only the gateway's unit sees it.  ``gateway``: what the running gateway says of it."""
    todo = f"systemd-run -P -p LoadCredential={credential}:FILE marathonctl preflight, with the unit's FILE"
    return unknown("provider_key", f"credential {credential} is for the gateway's unit alone; {gateway}", todo, route)


@dataclass(frozen=True, slots=True)
class Variable:
    """A host's variable that verifiers ask for.  ``state``: ``set``, ``empty``, ``unset``.  ``by_gateway``: by gateway.verifier_env."""

    name: str
    tasks: frozenset[str]
    state: str
    has_default: bool
    by_gateway: bool


def judge_key(variables: Sequence[Variable]) -> list[Row]:
    if not variables:
        return [not_needed("judge_key", "no verifier asks for a variable of this host")]
    return [_judge_key(variable) for variable in variables]


def _judge_key(variable: Variable) -> Row:
    who = f"for {named(variable.tasks)}"
    if variable.by_gateway:
        return ok("judge_key", f"{who}: given by gateway.verifier_env", variable.name)
    if variable.state == "set":
        return ok("judge_key", f"{who}: set here; the daemon's own environment is what counts", variable.name)
    if variable.has_default:
        return ok("judge_key", f"{who}: not set, the task's default holds", variable.name)
    todo = "set it where the daemon is started, or name it in gateway.verifier_env"
    return red("judge_key", f"{who}: {'set, but empty' if variable.state == 'empty' else 'not set'}", todo, variable.name)


def prices(models: Collection[str], without: Collection[str]) -> Row:
    if not models:
        return not_needed("prices", "no arm asks a model")
    if without:
        return red("prices", f"no price for {named(without)}: what is spent stays unknown, and no cap can hold", '[money.prices."MODEL"]')
    return ok("prices", f"priced: {named(models)}")


@dataclass(frozen=True, slots=True)
class ChannelSeen:
    """``good`` None: it cannot be told without sending."""

    name: str
    good: bool | None
    words: str
    sent: bool


def notify(channels: Sequence[ChannelSeen]) -> list[Row]:
    if not channels:
        return [warn("notify", "nobody is told of trouble or of the end", "set command or webhook in [notify]")]
    rows = []
    for channel in channels:
        if channel.good is None:
            rows.append(unknown("notify", channel.words, "marathonctl preflight --notify sends a message", channel.name))
        elif not channel.good:
            rows.append(red("notify", channel.words, "mend [notify], then marathonctl notify --test", channel.name))
        else:
            words = f"a message was sent: {channel.words}" if channel.sent else f"{channel.words}; nothing was sent"
            rows.append(ok("notify", words, channel.name))
    return rows


def gateway(needed: bool, away: str, troubles: Sequence[str]) -> Row:
    """``away``: why it counts as away; ``troubles``: what a living one complains of."""
    if not needed:
        return not_needed("gateway", "no route to a model is configured")
    if away:
        todo = "start it before the campaign: systemctl start marathond-gateway, or: marathond gateway --wait STATE_DIR/gateway"
        return warn("gateway", f"away: {away}", todo)
    if troubles:
        return red("gateway", "; ".join(troubles), "mend it: it holds up every arm")
    return ok("gateway", "runs for this state_dir")


def staged(package: str, at: str, why: str) -> Row:
    """``at``: where it lies; else ``why`` it does not."""
    if not at:
        return red("staged", why, "marathonctl stage", package)
    return ok("staged", f"at {at}", package)


def nothing_staged() -> Row:
    return not_needed("staged", "no arm brings a program of ours into its container")
