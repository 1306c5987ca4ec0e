"""Benchmark profiles: what is known of a benchmark, as data that ships with the package or that somebody wrote.

Owns the form of a profile file, reading it, and which settings it sets: weaker than every key that somebody gave, stronger than the
defaults.  Must not know a campaign's task folders (:mod:`marathond.service.taskread` compares).  A profile decides nothing by itself: each
value is a setting's, a check or a word in a report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from marathond.core.benchmark import NOT_RUN, Known, KnownTask, Mark, Support
from marathond.core.canonical import canonical_json
from marathond.core.errors import ConfigError
from marathond.core.names import AfterAgent
from marathond.core.paths import names_a_file
from marathond.core.tomlindex import KeyPath
from marathond.service.knobs import did_you_mean, one_of
from marathond.service.layers import Layer
from marathond.service.sections import Flag, Num, Section, Slug, Undeclared, Word, guilty
from marathond.service.settings_errors import ConfigErrors, explain
from marathond.service.tomlfile import TomlFile, read_toml, show

SHIPPED = Path(__file__).resolve().parents[1] / "benchmarks"

PROSE = frozenset({"title", "source", "note"})
"""Keys whose text changes nothing that runs; they, and ``features``, are no part of the digest: an upgrade that words them better, or
that runs more, must not end a campaign."""

LINE_AT_MOST = 400


def _one_line(value: str) -> str:
    if len(value) > LINE_AT_MOST or not value.isprintable():
        raise PydanticCustomError("wrong", "{expected}", {"expected": f"must be one line of text, at most {LINE_AT_MOST} characters"})
    return value


Line = Annotated[str, Strict(), AfterValidator(_one_line)]
Positive = Annotated[Num, Field(gt=0, le=31536000)]
Multiplier = Annotated[Num, Field(gt=0, le=1000)]


class Timeouts(Section):
    """``[timeouts]``: what each of the tasks' limits is multiplied with."""

    agent_multiplier: Multiplier | None = None
    verifier_multiplier: Multiplier | None = None
    build_multiplier: Multiplier | None = None


class Column(Section):
    """``[scores.NAME]``: whether the benchmark's verifiers tell this number (fault d11: no column of zeros for one they never tell)."""

    exists: Flag
    note: Line = Field(default="", description="what it means; of one that does not exist, why")

    @model_validator(mode="after")
    def _absence_has_a_reason(self) -> Column:
        if not self.exists and not self.note:
            raise guilty("note", "required where exists = false: the reason")
        return self


class Scores(Section):
    """``[scores]``: the columns that a report of the benchmark can have."""

    reward: Column
    partial: Column
    test_rate: Column


class Images(Section):
    """``[images]``: the folders of a task whose Dockerfile makes an image.  Only that of ``environment`` is built here."""

    folders: tuple[Literal["environment", "tests"], ...] = Field(default=("environment",), min_length=1)


class Feature(Section):
    """``[features.MARK]``: how much of it this version runs, and what is to be known about it."""

    support: Support
    note: Line = ""


class ProfileTask(Section):
    """``[tasks.NAME]``: what is known of one task; seconds, cores, GiB."""

    marks: tuple[Mark, ...] = ()
    agent_s: Positive | None = None
    verifier_s: Positive | None = None
    build_s: Positive | None = None
    cpus: Positive | None = None
    memory_gb: Positive | None = None


class Profile(Section):
    """The whole file.  ``tasks`` empty: their names are not known, and any task may be one."""

    format: Literal[1]
    name: Slug
    title: Line = ""
    source: Line = ""
    timeouts: Timeouts = Field(default_factory=Timeouts)
    after_agent: AfterAgent | None = None
    network_default: Undeclared | None = Field(default=None, description="network of a task that declares none")
    scores: Scores
    images: Images = Field(default_factory=Images)
    exact: tuple[Mark, ...] = Field(default=(), description="marks stated of every task that has them")
    features: dict[Word, Feature] = Field(default_factory=dict)
    tasks: dict[Word, ProfileTask] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _features_are_told_as_they_are(self) -> Profile:
        for mark, feature in self.features.items():
            if mark not in set(Mark):
                raise guilty(f"features.{mark}", one_of(Mark, mark))
            if mark in NOT_RUN and feature.support is not Support.NO:
                raise guilty(f"features.{mark}.support", "must be no: this version parks such tasks")
            if feature.support is not Support.YES and not feature.note:
                raise guilty(f"features.{mark}.note", f"required where support = {feature.support}: what is missing")
        for name, task in self.tasks.items():
            for index, mark in enumerate(task.marks):
                if mark not in self.features:
                    raise guilty(f"tasks.{name}.marks.{index}", f"needs [features.{mark}], which says whether it is supported")
        return self


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A profile that was read.  ``digest``: of what it sets and checks, ``sha256:…``; ``data``: the file as written."""

    profile: Profile
    digest: str
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def known(self) -> Known:
        """For the comparison with folders."""
        profile = self.profile
        tasks = {
            name: KnownTask(frozenset(task.marks), task.agent_s, task.verifier_s, task.build_s, task.cpus, task.memory_gb)
            for name, task in profile.tasks.items()
        }
        return Known(profile.name, tasks, frozenset(profile.exact), profile.images.folders)

    def layer(self) -> Layer:
        """What the profile sets of the settings; where ``config show`` says it came from: ``profile NAME``."""
        profile = self.profile
        values: dict[tuple[str, str], Any] = {
            ("limits", "agent_timeout_multiplier"): profile.timeouts.agent_multiplier,
            ("limits", "verifier_timeout_multiplier"): profile.timeouts.verifier_multiplier,
            ("limits", "build_timeout_multiplier"): profile.timeouts.build_multiplier,
            ("limits", "after_agent"): None if profile.after_agent is None else profile.after_agent.value,
            ("network", "undeclared"): profile.network_default,
        }
        data: dict[str, dict[str, Any]] = {}
        for (section, key), value in values.items():
            if value is not None:
                data.setdefault(section, {})[key] = value
        names: dict[KeyPath, str] = {(section, key): f"profile {profile.name}" for section, table in data.items() for key in table}
        return Layer(data, names)

    def treatment(self) -> dict[str, str]:
        """What of it stands in a campaign's treatment."""
        return {"name": self.name, "digest": self.digest}


def shipped() -> tuple[str, ...]:
    """Names of the profiles in the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def chosen(layers: Sequence[Layer], cwd: Path) -> Benchmark | None:
    """The profile that ``campaign.benchmark`` names in the first of ``layers`` that holds it; None: none is named, or not by a text.

    :raises ConfigError: there is no such profile, or (as ConfigErrors) something is wrong in it, a line each.
    """
    key: KeyPath = ("campaign", "benchmark")
    layer = next((layer for layer in layers if layer.holds(key)), None)
    if layer is None:
        return None
    section = layer.data["campaign"]
    value = section["benchmark"]
    if not isinstance(value, str) or not value or "\0" in value:
        return None  # the models say what is wrong with it
    if names_a_file(value):
        return read(Path(value), cwd)
    if value not in shipped():
        hint = did_you_mean(value, shipped(), otherwise=f"; there are {', '.join(shipped())}")
        expected = f"no such profile{hint}; one of your own is named by its path, such as ./{value}.toml"
        raise ConfigError(layer.where(key), show("campaign.benchmark", layer.written(key)), expected)
    return read(SHIPPED / f"{value}.toml", cwd)


def read(path: Path, cwd: Path) -> Benchmark:
    """Read one profile file.

    :raises ConfigError: it cannot be read or is no TOML; (as ConfigErrors) unknown keys and wrong values, each with its line.
    """
    file = read_toml(path, cwd)
    try:
        profile = Profile.model_validate(dict(file.data))
    except ValidationError as error:
        raise ConfigErrors(explain(Profile, error, (_layer(file),))) from error
    digest = hashlib.sha256(canonical_json(_without_prose(file.data)).encode()).hexdigest()
    return Benchmark(profile, f"sha256:{digest}", file.data)


def _layer(file: TomlFile) -> Layer:
    return Layer(file.data, file=file, raw=file.data)


def _without_prose(data: Mapping[str, Any]) -> dict[str, Any]:
    def strip(value: Any) -> Any:
        return {key: strip(item) for key, item in value.items() if key not in PROSE} if isinstance(value, Mapping) else value

    return {key: strip(value) for key, value in data.items() if key not in PROSE | {"features"}}
