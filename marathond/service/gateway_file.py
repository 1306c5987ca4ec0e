"""What the gateway is told of its ways out: ``gateway.json``, and the scripted provider that answers the gates of trials.

Owns how ``[gateway]`` becomes the gateway's own settings, and the route ``gate``, which leads to a practice provider inside this process.
Nothing secret is written: of the real key only the place is named, and the gate's key opens nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio import to_thread
from pydantic import ValidationError

from marathond.core.errors import ArtifactError, ConfigError
from marathond.gateway.config import GatewayConfig
from marathond.gateway.files import write_json
from marathond.practice.gate import gate_practice
from marathond.practice.server import practising
from marathond.service.sections_model import GATE_ROUTE, GatewaySection, RouteSection

GATE_KEY = "marathond-gate"
"""Sent to our own process, which takes any key: the gateway wants one for every route."""


def render(section: GatewaySection, gate_url: str, gate_key: Path) -> dict[str, Any]:
    """The content of ``gateway.json``.

    :param gate_url: base URL of the provider that answers gates.
    :param gate_key: file that holds :data:`GATE_KEY`.
    :raises ConfigError: the gateway would refuse it.
    """
    routes = {name: route_of(route) for name, route in section.routes.items()}
    routes[GATE_ROUTE] = {"base_url": gate_url, "key_file": str(gate_key)}
    told = {"format": 1, "routes": routes, "hold": {"hold_ms": int(section.hold_s * 1000)}}
    try:
        GatewayConfig.model_validate(told)
    except ValidationError as err:
        first = err.errors(include_url=False, include_input=False)[0]
        raise ConfigError("gateway", ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")) from None
    return told


def route_of(route: RouteSection) -> dict[str, Any]:
    """One route as the gateway reads it."""
    told = {key: getattr(route, key) for key in type(route).model_fields}
    plain = {key: str(value) if isinstance(value, Path) else value for key, value in told.items() if value is not None}
    return plain | {"allow": list(route.allow)}


def write(folder: Path, section: GatewaySection, gate_url: str) -> None:
    """Put it where the gateway looks; it takes up a change within a moment.

    :raises ConfigError: the gateway would refuse it.  :raises ArtifactError: the disk says no.
    """
    key = folder / "gate.key"
    told = render(section, gate_url, key)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        if not key.exists():
            key.write_text(GATE_KEY + "\n")
    except OSError as err:
        raise ArtifactError("io", str(key), str(err)) from err
    write_json(folder / "gateway.json", told)


class GatewayFile:
    """The file for one daemon life; :func:`kept` makes it."""

    def __init__(self, folder: Path | None, gate_url: str) -> None:
        self._folder, self._gate_url = folder, gate_url

    async def tell(self, section: GatewaySection) -> None:
        """Write it anew.  Raises as :func:`write`; does nothing in a life that began without a gateway."""
        if self._folder is not None:
            await to_thread.run_sync(write, self._folder, section, self._gate_url)


@asynccontextmanager
async def kept(folder: Path | None, section: GatewaySection) -> AsyncIterator[GatewayFile]:
    """Written, and the gates answered, for as long as the context lasts.  ``folder`` None: this campaign needs no gateway.

    :raises ConfigError, ArtifactError: as :func:`write`.
    """
    if folder is None:
        yield GatewayFile(None, "")
        return
    async with practising(gate_practice(), host="127.0.0.1") as server:
        file = GatewayFile(folder, server.url + "/v1")
        await file.tell(section)
        yield file
