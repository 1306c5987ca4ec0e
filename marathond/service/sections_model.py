"""The sections ``[gateway]``, ``[money]`` and ``[notify]``: the way to the model, what it costs, and whom to tell.

Owns what a valid value is, as :mod:`marathond.service.sections` does for the others.  Holds no key, only where one lies.
"""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, PlainSerializer, Strict, StringConstraints, model_validator

from marathond.core.text import hidden_url
from marathond.service.sections import HostPath, Int, Num, Section, Slug, Text, Word, guilty

Url = Annotated[str, Strict(), StringConstraints(pattern=r"^https?://[^\s]+$", max_length=2000)]
Dollars = Annotated[Num, Field(gt=0, le=1e9)]
Allowed = Annotated[str, Strict(), StringConstraints(pattern=r"^(GET|POST) /v1/[A-Za-z0-9/_.-]{1,200}$")]
GATE_ROUTE = "gate"
"""The gateway's route to the scripted answers of the gates; the name is taken."""
MAIN_ROUTE = "main"
KEY_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"})


class RouteSection(Section):
    """``[gateway.routes.NAME]``: one way out, with a key and a budget of its own."""

    base_url: Url = Field(description="takes the place of the client's /v1")
    key_file: HostPath | None = Field(default=None, description="file that holds the key")
    key_credential: Word | None = Field(default=None, description="the same, by its name below systemd's credentials directory")
    key_header: Literal["authorization", "x-api-key", "api-key"] = Field(default="authorization", description="header that carries the key")
    allow: tuple[Allowed, ...] = Field(
        default=("POST /v1/responses", "POST /v1/chat/completions", "GET /v1/models"), description="methods and paths that are let through"
    )
    host_proxy: Url | None = Field(default=None, description="HTTP proxy of this host on the way out")
    ca_file: HostPath | None = Field(default=None, description="certificate authorities, instead of the system's")
    headers: dict[str, Text] = Field(default_factory=dict, description="further headers of every request")
    requests_per_min: Annotated[Int, Field(gt=0)] | None = Field(default=None, description="budget shared by all arms")
    tokens_per_min: Annotated[Int, Field(gt=0)] | None = Field(default=None, description="budget shared by all arms")

    @model_validator(mode="after")
    def _nothing_secret(self) -> RouteSection:
        """What stands here is written into the ledger and into the gateway's file."""
        if urlsplit(self.base_url).username is not None:
            raise guilty("base_url", "must hold no user or password: the key belongs into key_file")
        for name in self.headers:
            if name.lower() in KEY_HEADERS:
                raise guilty(f"headers.{name}", "belongs into key_file: nothing secret is kept in a configuration")
        return self

    @model_validator(mode="after")
    def _one_key(self) -> RouteSection:
        if (self.key_file is None) == (self.key_credential is None):
            raise guilty("key_file", "exactly one of key_file and key_credential must be given")
        return self


class GatewaySection(Section):
    """``[gateway]``: the process between the trials and their model provider."""

    routes: dict[Slug, RouteSection] = Field(default_factory=dict, max_length=16, description="ways to model providers, by name")
    route: Slug | None = Field(default=None, description="route of the agents; default: the only one, or `main`")
    verifier_route: Slug | None = Field(default=None, description="route of verifiers that ask a judge model")
    verifier_env: dict[str, Text] = Field(default_factory=dict, description="variables for them, with {base_url} and {key}")
    port: Int = Field(default=8790, ge=1024, le=65535, description="port on loopback inside each trial's network namespace")
    strip: tuple[Word, ...] = Field(default=(), description="fields removed from every request, such as input[].internal_id")
    hold_s: Num = Field(default=240.0, ge=0, le=290, description="longest wait of one request for the provider or the shared budget")
    held_is_charged: bool = Field(default=False, description="whether time held by the gateway counts against the deadline")
    held_at_most_s: Num = Field(default=3600.0, ge=0, le=86400, description="most held time that is not charged to one trial")

    @property
    def agents_route(self) -> str:
        """Name of the route that agents take; only where there are routes."""
        others = [name for name in self.routes if name != self.verifier_route]
        return self.route or (others[0] if len(others) == 1 else MAIN_ROUTE)

    @model_validator(mode="after")
    def _routes_exist(self) -> GatewaySection:
        if GATE_ROUTE in self.routes:
            raise guilty(f"routes.{GATE_ROUTE}", "the name is taken by the gates' own route; choose another")
        known = f"; defined: {', '.join(self.routes) or 'none'}"
        for key in ("route", "verifier_route"):
            name = getattr(self, key)
            if name is not None and name not in self.routes:
                raise guilty(key, f"no such route in [gateway.routes]{known}")
        if self.routes and self.agents_route not in self.routes:
            raise guilty("route", f"required, for there are several routes and none is named {MAIN_ROUTE}{known}")
        if self.verifier_env and self.verifier_route is None:
            raise guilty("verifier_route", "required, for there is a verifier_env")
        return self


class PriceSection(Section):
    """``[money.prices."MODEL"]``: US dollars per million tokens of each kind."""

    input: Annotated[Num, Field(ge=0, le=1e6)] = Field(description="dollars per million input tokens")
    cached_input: Annotated[Num, Field(ge=0, le=1e6)] | None = Field(default=None, description="default: as input")
    cache_write: Annotated[Num, Field(ge=0, le=1e6)] | None = Field(default=None, description="default: as input")
    output: Annotated[Num, Field(ge=0, le=1e6)] = Field(description="dollars per million output tokens")


class MoneySection(Section):
    """``[money]``: what tokens cost and how much may be spent."""

    prices: dict[Word, PriceSection] = Field(default_factory=dict, description="by model")
    trial_cap_usd: Dollars | None = Field(default=None, description="a trial that has spent this ends as a budget end")
    campaign_cap_usd: Dollars | None = Field(default=None, description="no block of cells is begun that might exceed this")
    expected_trial_usd: Dollars | None = Field(default=None, description="forecast of a trial until some of its arm have ended")


class NotifySection(Section):
    """``[notify]``: who is told of trouble and of the end.

    A webhook's URL is a secret by itself: written out (the ledger keeps the configuration), only its host is left.
    """

    command: tuple[Text, ...] = Field(default=(), description="argument list; the message comes as JSON on its standard input")
    webhook: Annotated[Url, PlainSerializer(hidden_url)] | None = Field(
        default=None, description="URL that gets the message as a JSON POST"
    )
    no_score_hours: Num = Field(default=6.0, gt=0, le=8760, description="tell when running trials have brought no score for so long")

    @model_validator(mode="after")
    def _command_names_a_program(self) -> NotifySection:
        if self.command and not self.command[0]:
            raise guilty("command", "must start with a program's name")
        return self
