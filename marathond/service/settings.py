"""All settings of the daemon: one frozen object, from the file, the environment and explicit overrides.

Owns the layers, their precedence (override, environment, file, benchmark profile, default) and where each value came from.  A key given
in a higher layer replaces the lower one whole, tables and lists included.  Must not know what the daemon does with a value.

Files are looked for in this order, the first one wins: ``--config``; ``$MARATHOND_CONFIG``; ``./marathond.toml``;
``$XDG_CONFIG_HOME/marathond/config.toml``; ``/etc/marathond/config.toml``.  The environment's ``MARATHOND_SECTION__KEY`` sets one key of
every section but ``[arms]`` and ``[scores]``; lists and tables are written as JSON.  Relative paths start at the file's folder; in the
environment and in overrides at the current folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from marathond.core import paths
from marathond.core.errors import ConfigError
from marathond.core.model import Arm, CodexArm, LoopXArm, Mount
from marathond.core.money import price_of
from marathond.core.names import AgentKind, NetworkPolicy
from marathond.core.tomlindex import KeyPath, dotted
from marathond.service.benchmark import Benchmark, chosen
from marathond.service.knobs import did_you_mean
from marathond.service.layers import TABLES, Layer, default_layer, env_layer, file_layer, override_layer
from marathond.service.sections import (
    DRIVE_KEYS,
    Admission,
    ArmSection,
    Campaign,
    Daemon,
    EngineSection,
    Limits,
    Network,
    Slug,
    Word,
    guilty,
)
from marathond.service.sections_codex import CodexSection
from marathond.service.sections_comparison import Comparison
from marathond.service.sections_loopx import LoopXSection
from marathond.service.sections_model import GatewaySection, MoneySection, NotifySection
from marathond.service.sections_page import PageSection
from marathond.service.sections_scores import ScoreSection
from marathond.service.sections_verifier import VerifierSection
from marathond.service.settings_errors import ConfigErrors, explain
from marathond.service.tomlfile import is_there, read_toml

HOLD_MARGIN_MS = 10_000

_LAYERS: ContextVar[tuple[Layer, ...]] = ContextVar("layers", default=())


class Settings(BaseSettings):
    """Made by :func:`load` only: by itself it reads neither a file nor the environment."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)

    daemon: Daemon
    engine: EngineSection = Field(default_factory=EngineSection)
    network: Network = Field(default_factory=Network)
    admission: Admission = Field(default_factory=Admission)
    limits: Limits = Field(default_factory=Limits)
    verifier: VerifierSection = Field(default_factory=VerifierSection)
    campaign: Campaign
    codex: CodexSection = Field(default_factory=CodexSection)
    loopx: LoopXSection = Field(default_factory=LoopXSection)
    gateway: GatewaySection = Field(default_factory=GatewaySection)
    money: MoneySection = Field(default_factory=MoneySection)
    notify: NotifySection = Field(default_factory=NotifySection)
    page: PageSection = Field(default_factory=PageSection)
    scores: dict[Word, ScoreSection] = Field(default_factory=dict, description="where a task's verifier keeps its numbers, by task")
    comparison: Comparison = Field(default_factory=Comparison)
    arms: dict[Slug, ArmSection] = Field(min_length=1, description="what is compared, by name")

    _layers: tuple[Layer, ...] = PrivateAttr(default=())
    _benchmark: Benchmark | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _arms_exist(self) -> Settings:
        for index, name in enumerate(self.campaign.arms or ()):
            if name not in self.arms:
                known = f"; defined: {', '.join(self.arms)}"
                raise guilty(f"campaign.arms.{index}", "no such arm in [arms]" + did_you_mean(name, self.arms, otherwise=known))
        if self.drives_codex and self.codex.model is None:
            raise guilty("codex.model", 'required, for there is an arm of kind = "codex"')
        if self.drives_codex and not self.gateway.routes:
            raise guilty("gateway.routes", 'required, for there is an arm of kind = "codex"')
        if self.drives_loopx and self.loopx.python is None:
            raise guilty("loopx.python", "required, for there is an arm with loopx: a folder, a tar archive, or uv:VERSION")
        if self.drives_codex and self.gateway.hold_s * 1000 > self.codex.stream_idle_timeout_ms - HOLD_MARGIN_MS:
            limit_s = (self.codex.stream_idle_timeout_ms - HOLD_MARGIN_MS) / 1000
            raise guilty(
                "gateway.hold_s", f"must be at most {limit_s:g}, 10 s below codex.stream_idle_timeout_ms: codex would give up first"
            )
        return self

    @model_validator(mode="after")
    def _contrasts_are_of_its_arms(self) -> Settings:
        for index, contrast in enumerate(self.comparison.contrasts):
            for side, name in enumerate(contrast):
                if name not in self.arm_names:
                    known = f"; the campaign's arms: {', '.join(self.arm_names)}"
                    raise guilty(
                        f"comparison.contrasts.{index}.{side}", "no such arm" + did_you_mean(name, self.arm_names, otherwise=known)
                    )
        return self

    @model_validator(mode="after")
    def _caps_can_be_counted(self) -> Settings:
        money, model = self.money, self.codex.model
        if not self.drives_codex or (money.trial_cap_usd is None and money.campaign_cap_usd is None):
            return self
        if price_of(money.prices, model, None) is None:
            raise guilty("money.prices", f"no price for {model} (codex.model), and a cap needs one")
        if money.trial_cap_usd is None and money.expected_trial_usd is None:
            wanted = "needs money.trial_cap_usd or money.expected_trial_usd, to tell what the first blocks may cost"
            raise guilty("money.campaign_cap_usd", wanted)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Our own layers, highest first: they know the line, variable or option behind each value, pydantic's do not."""
        return (init_settings, *(_LayerSource(settings_cls, layer) for layer in _LAYERS.get()))

    @property
    def config_path(self) -> Path:
        """The file that was read; reloading means loading it again."""
        return next(layer.file.path for layer in self._layers if layer.file is not None)

    @property
    def benchmark(self) -> Benchmark | None:
        """The profile that ``campaign.benchmark`` names, as it was read with the rest."""
        return self._benchmark

    @property
    def undeclared_network(self) -> NetworkPolicy:
        """Of tasks that declare none."""
        return NetworkPolicy.PUBLIC if self.network.undeclared == "public" else NetworkPolicy.NONE

    @property
    def arm_names(self) -> tuple[str, ...]:
        """The campaign's arms, in the order in which it names them (by default all, as defined)."""
        return self.campaign.arms or tuple(self.arms)

    def arm_models(self, packages: Mapping[str, str] = MappingProxyType({})) -> tuple[Arm, ...]:
        """The campaign's arms as the rest of the program knows them, ``after_agent`` and the operator's role resolved.

        :param packages: ``codex`` and ``loopx`` to the ids of what is staged; left out where nothing is hashed or run.
        """
        return tuple(self._arm(name, self.arms[name], packages) for name in self.arm_names)

    @property
    def drives_codex(self) -> bool:
        """Whether an arm of the campaign is of kind codex: then it needs a staged codex and a gateway."""
        return any(self.arms[name].kind is AgentKind.CODEX for name in self.arm_names)

    @property
    def drives_loopx(self) -> bool:
        """Whether an arm of the campaign has LoopX: then it needs a staged LoopX, too."""
        return any(self.arms[name].loopx is not None for name in self.arm_names)

    def _arm(self, name: str, arm: ArmSection, packages: Mapping[str, str]) -> Arm:
        return Arm(
            name=name,
            kind=arm.kind,
            argv=arm.argv,
            env=dict(arm.env),
            user=arm.user,
            cwd=arm.cwd,
            mounts=tuple(Mount(str(mount.source), mount.target, mount.read_only) for mount in arm.mounts),
            install_check=arm.install_check,
            after_agent=arm.after_agent or self.limits.after_agent,
            codex=self._codex(arm, packages) if arm.kind is AgentKind.CODEX else None,
        )

    def _codex(self, arm: ArmSection, packages: Mapping[str, str]) -> CodexArm:
        assert self.codex.model is not None and arm.drive is not None
        given: dict[str, Any] = {key: getattr(arm, key) for key in DRIVE_KEYS if getattr(arm, key) is not None}
        if arm.loopx is not None:
            loopx = self.loopx
            inside, package = loopx.state == "inside", packages.get("loopx", "")
            given["loopx"] = LoopXArm(package, loopx.version, loopx.wanted().source, inside, arm.loopx, arm.wake_interval_s)
            given.setdefault("operator", True)
        return CodexArm(
            package=packages.get("codex", ""),
            version=self.codex.version,
            model=self.codex.model,
            effort=self.codex.effort,
            infra_retries=self.codex.infra_retries,
            request_max_retries=self.codex.request_max_retries,
            stream_max_retries=self.codex.stream_max_retries,
            stream_idle_timeout_ms=self.codex.stream_idle_timeout_ms,
            drive=arm.drive,
            **given,
        )


class _LayerSource(PydanticBaseSettingsSource):
    """One layer for pydantic-settings, which merges tables deeply: keys that a higher layer holds are left out here."""

    def __init__(self, settings_cls: type[BaseSettings], layer: Layer) -> None:
        super().__init__(settings_cls)
        self._layer = layer

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._layer.data.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return {name: self._below(section, self.current_state.get(name), name in TABLES) for name, section in self._layer.data.items()}

    @classmethod
    def _below(cls, section: Any, above: Any, nested: bool = False) -> Any:
        if not isinstance(section, Mapping) or not isinstance(above, Mapping):
            return section
        if nested:
            return {name: cls._below(arm, above.get(name)) for name, arm in section.items()}
        return {key: value for key, value in section.items() if key not in above}


def load(
    path: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    uid: int | None = None,
) -> Settings:
    """Find, read and check the configuration.

    :param path: ``--config``; None looks in the usual places.
    :param overrides: dotted key → value, stronger than everything else; a text is read like the environment's.
    :raises ConfigError: no file, not TOML, or (as :class:`~marathond.service.settings_errors.ConfigErrors`) every wrong key, a line each.
    """
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    uid = os.geteuid() if uid is None else uid
    candidates = paths.config_candidates(path, environ, cwd)
    path = paths.choose_config(candidates, is_there)
    if path is None:
        raise _nowhere(candidates, cwd)
    given = (
        override_layer(Settings, overrides or {}, cwd, environ),
        env_layer(Settings, environ, cwd),
        file_layer(read_toml(path, cwd), environ),
    )
    benchmark = chosen(given, cwd)
    layers = (*given, *(() if benchmark is None else (benchmark.layer(),)), default_layer(environ, uid))
    settings = _validate(layers)
    settings._layers, settings._benchmark = layers, benchmark
    return settings


def _validate(layers: tuple[Layer, ...]) -> Settings:
    problems = [problem for layer in layers for problem in layer.problems]
    token = _LAYERS.set(layers)
    try:
        settings = Settings()
    except ValidationError as error:
        raise ConfigErrors([*problems, *explain(Settings, error, layers)]) from error
    finally:
        _LAYERS.reset(token)
    if problems:
        raise ConfigErrors(problems)
    return settings


def _nowhere(candidates: tuple[paths.Candidate, ...], cwd: Path) -> ConfigError:
    looked = ", ".join(str(candidate.path) for candidate in candidates)
    hint = "; there is a config.toml here: name it with --config" if (cwd / "config.toml").exists() else ""
    return ConfigError("", "no configuration", f"looked for {looked}{hint}")


def origins(settings: Settings) -> dict[str, tuple[object, str]]:
    """Every key with its value and where that came from: ``default``, ``profile NAME``, ``config.toml:12``, ``env …``, ``override``."""
    found: dict[str, tuple[object, str]] = {}
    for section in type(settings).model_fields:
        value = getattr(settings, section)
        groups: dict[KeyPath, Any] = {(section, name): table for name, table in value.items()} if section in TABLES else {(section,): value}
        for path, model in groups.items():
            for key in type(model).model_fields:
                found[dotted((*path, key))] = (getattr(model, key), _origin(settings, (*path, key)))
    return found


def where(settings: Settings, *path: str | int) -> str:
    """Where the value at ``path`` was written (``config.toml:12``), or ``default``; for errors that show only later."""
    return _origin(settings, path)


def _origin(settings: Settings, path: KeyPath) -> str:
    return next((layer.where(path) for layer in settings._layers if layer.holds(path)), "default")
