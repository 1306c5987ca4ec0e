"""Asks the model provider for its list of models, over the gateway's own client: the same proxy, certificates, headers and key.

Owns that one request, which bills nothing.  The key goes from its file into the request and nowhere else; no word of an answer is passed
on but its status and the names of its models.  Without a key that can be read a made-up one is sent: whoever refuses it is reached.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from multidict import CIMultiDict
from pydantic import ValidationError

from marathond.core.errors import ConfigError
from marathond.core.preflight import model as judge
from marathond.core.preflight.model import Asked
from marathond.core.preflight.rows import Row
from marathond.core.proxies import without_secret
from marathond.gateway.body import HeldBody
from marathond.gateway.config import CREDENTIALS_ENV, Bounds, Route
from marathond.gateway.keys import KeyFile
from marathond.gateway.upstream import Answer, Upstream
from marathond.ports.clock import Clock
from marathond.service.gateway_file import route_of
from marathond.service.preflight.run import Unseen
from marathond.service.sections_model import RouteSection

ASK = ("GET", "/v1/models")
ANSWER_S = 20
LIST_BYTES_MAX = 4 << 20
NO_KEY = "no-key-marathond-preflight"


async def ask(name: str, section: RouteSection, clock: Clock) -> tuple[str, Asked]:
    """Why the real key cannot be sent (empty: it was), and what came of the request.

    :raises Unseen: the gateway would not take the route.
    """
    try:
        route = Route.model_validate(route_of(section))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise Unseen(f"the gateway would not take it: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    problem = _key_problem(route)
    if not problem:
        return "", await _asked(name, route, clock, with_key=True)
    with tempfile.TemporaryDirectory(prefix="marathond-preflight-") as folder:
        stand_in = Path(folder) / "key"
        stand_in.write_text(NO_KEY)
        without = route.model_copy(update={"key_file": stand_in, "key_credential": None})
        return problem, await _asked(name, without, clock, with_key=False)


def _key_problem(route: Route) -> str:
    try:
        return KeyFile(route.key_path(os.environ)).problem()
    except ConfigError as error:
        return str(error)


async def _asked(name: str, route: Route, clock: Clock, *, with_key: bool) -> Asked:
    bounds = Bounds(upstream_idle_s=ANSWER_S)
    try:
        upstream = Upstream(name, route, bounds, clock)
    except OSError as error:  # ca_file
        raise Unseen(f"ca_file {route.ca_file}: {error.strerror or error}") from error
    address, proxy = _shown(route.base_url), "" if route.host_proxy is None else without_secret(route.host_proxy)
    began = time.monotonic()
    try:
        outcome = await upstream.attempt(*ASK, CIMultiDict({"accept": "application/json"}), HeldBody(b""))
        took_ms = round((time.monotonic() - began) * 1000)
        if isinstance(outcome, Answer):
            try:
                models = _models(await _whole(outcome))
            finally:
                outcome.finish(complete=False)
            return Asked(address, proxy, outcome.status, "", took_ms, models, with_key)
        why = "connected, and the answer is empty" if outcome.kind == "empty" else outcome.why
        return Asked(address, proxy, outcome.status, why, took_ms, None, with_key)
    finally:
        await upstream.close()


async def _whole(answer: Answer) -> bytes:
    """What came of it: a list that breaks off is no list, and its status still says what became of the key."""
    raw = bytearray(answer.first)
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        while len(raw) <= LIST_BYTES_MAX and (chunk := await answer.response.content.readany()):
            raw += chunk
    return bytes(raw)


def _models(raw: bytes) -> frozenset[str] | None:
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    rows = told.get("data") if isinstance(told, dict) else None
    if not isinstance(rows, list):
        return None
    return frozenset(row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str))


def _shown(url: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"


def key_row(name: str, section: RouteSection, problem: str, asked: Asked | None, *, model: str | None, gateway: str) -> Row:
    """:param gateway: what the running gateway says of the route's key, for one that only its unit can read."""
    if problem and section.key_credential is not None and CREDENTIALS_ENV not in os.environ:
        return judge.key_elsewhere(name, section.key_credential, gateway)
    return judge.provider_key(name, problem, asked, model)
