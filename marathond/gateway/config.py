"""The gateway's own settings, ``gateway.json``: routes out, the shared budget, holds and bounds.

Written by whoever composes the service, read again when it changes.  Owns names, defaults and bounds.  Holds no key, only where one lies.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from marathond.core.errors import ConfigError
from marathond.gateway.files import read_json
from marathond.gateway.retry import Policy

CREDENTIALS_ENV = "CREDENTIALS_DIRECTORY"
_MIB = 1024 * 1024
Positive = Annotated[int, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Route(_Section):
    """One way out, with a key and a budget of its own.

    ``base_url`` takes the place of the client's ``/v1``.  ``key_credential`` is a name below systemd's credentials directory.
    ``host_proxy``: an HTTP proxy's URL, None goes out directly.  ``allow``: the only methods and paths, matched as they stand.
    """

    base_url: str
    key_file: Path | None = None
    key_credential: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    key_header: Literal["authorization", "x-api-key", "api-key"] = "authorization"
    headers: dict[str, str] = Field(default_factory=dict)
    host_proxy: str | None = None
    ca_file: Path | None = None
    allow: tuple[str, ...] = ("POST /v1/responses", "GET /v1/models")
    requests_per_min: Positive | None = None
    tokens_per_min: Positive | None = None
    output_tokens_guess: Annotated[int, Field(ge=0)] = 1000

    @field_validator("base_url", "host_proxy")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError("must be an http:// or https:// URL without query")
        return value

    @model_validator(mode="after")
    def _one_key(self) -> Route:
        if (self.key_file is None) == (self.key_credential is None):
            raise ValueError("exactly one of key_file and key_credential must be given")
        return self

    def key_path(self, environ: dict[str, str] | os._Environ[str]) -> Path:
        """Where the key lies.  :raises ConfigError: a credential outside a systemd unit."""
        if self.key_file is not None:
            return self.key_file
        folder = environ.get(CREDENTIALS_ENV)
        if not folder:
            raise ConfigError("gateway.json", f"key_credential = {self.key_credential}", f"${CREDENTIALS_ENV} is not set (LoadCredential=)")
        return Path(folder) / str(self.key_credential)


class Hold(_Section):
    """See :class:`marathond.gateway.retry.Policy`."""

    hold_ms: Annotated[int, Field(ge=0, le=290_000)] = 240_000
    first_ms: Positive = 500
    at_most_ms: Positive = 30_000
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.25
    retry_after_s: Positive = 5
    retry_after_at_most_s: Positive = 60

    def policy(self) -> Policy:
        return Policy(**self.model_dump())


class Bounds(_Section):
    """Everything that an agent could make grow."""

    body_bytes: Positive = 64 * _MIB
    bodies_bytes: Positive = 512 * _MIB
    bodies_bytes_per_listener: Positive = 128 * _MIB
    error_bytes: Positive = 256 * 1024
    streams: Positive = 512
    streams_per_listener: Positive = 32
    connections_per_listener: Positive = 64
    header_line_bytes: Positive = 16 * 1024
    headers: Positive = 100
    body_s: Positive = 60
    connect_s: Positive = 10
    upstream_idle_s: Positive = 600
    client_stall_s: Positive = 300
    drain_s: Positive = 20
    segment_bytes: Positive = 32 * _MIB
    segments: Annotated[int, Field(ge=2)] = 128


class GatewayConfig(_Section):
    """The whole file."""

    format: Literal[1]
    routes: dict[str, Route] = Field(min_length=1, max_length=16)
    hold: Hold = Field(default_factory=Hold)
    bounds: Bounds = Field(default_factory=Bounds)
    poll_ms: Annotated[int, Field(ge=20, le=10_000)] = 250


def load(folder: Path) -> GatewayConfig:
    """``gateway.json`` in ``folder``.

    :raises ConfigError: it is missing or wrong: which key, what was expected.
    :raises ArtifactError: it cannot be read.
    """
    path = folder / "gateway.json"
    told: dict[str, Any] | None = read_json(path)
    if told is None:
        raise ConfigError(str(path), "", "no such file")
    try:
        return GatewayConfig.model_validate(told)
    except ValidationError as err:
        first = err.errors(include_url=False, include_input=False)[0]
        raise ConfigError(str(path), ".".join(map(str, first["loc"])), first["msg"]) from None
