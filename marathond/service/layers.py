"""The layers that settings are made of: overrides, environment, file, and defaults that depend on who and where we are.

Owns how each layer's text becomes values and what a relative path means in it.  Must not judge values: that is the models' work.
"""

from __future__ import annotations

import glob
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from marathond.core import paths
from marathond.core.errors import ConfigError
from marathond.core.tomlindex import KeyPath
from marathond.service.knobs import did_you_mean, number_or_text
from marathond.service.tomlfile import TomlFile
from marathond.staging.pins_loopx import UV

TABLES = frozenset({"arms", "scores"})
"""Sections of named tables: an arm, or a task."""

_FALSE, _TRUE = frozenset({"false", "no", "off", "0"}), frozenset({"true", "yes", "on", "1"})


@dataclass(frozen=True, slots=True)
class Layer:
    """``data``: section → key → value.  ``names``: where a (section, key) came from; ``file``: the same by line.

    ``raw``: the values as written, before paths were made absolute.  ``problems``: what could not even become a value.
    """

    data: Mapping[str, Any]
    names: Mapping[KeyPath, str] = field(default_factory=dict)
    file: TomlFile | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[ConfigError, ...] = ()

    def holds(self, path: KeyPath) -> bool:
        return _look(self.data, path) is not None

    def where(self, path: KeyPath) -> str:
        """``config.toml:31``, ``env MARATHOND_…``, ``override``."""
        if self.file is not None:
            return self.file.where(path)
        return self.names.get(path[:2], "") or self.names.get(path[:3], "")

    def written(self, path: KeyPath) -> Any:
        """The value as the user wrote it (a path before it was made absolute)."""
        found = _look(self.raw or self.data, path)
        return None if found is None else found[0]


def _look(data: Any, path: KeyPath) -> tuple[Any] | None:
    """The value at ``path`` in a box, so that a value None differs from nothing."""
    for part in path:
        listed = isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)
        if not listed and not (isinstance(data, Mapping) and part in data):
            return None
        data = data[part]
    return (data,)


def file_layer(file: TomlFile, environ: Mapping[str, str]) -> Layer:
    """Relative paths start at the file's folder."""
    return Layer(_absolute(file.data, file.base, environ), file=file, raw=file.data)


def default_layer(environ: Mapping[str, str], uid: int) -> Layer:
    """Defaults that no model can know: the state directory of this user, and ``DOCKER_HOST``."""
    names: dict[KeyPath, str] = {("daemon", "state_dir"): "default", ("engine", "url"): "default"}
    if environ.get("DOCKER_HOST"):
        names["engine", "url"] = "env DOCKER_HOST"
    data = {
        "daemon": {"state_dir": paths.default_state_dir(uid, environ)},
        "engine": {"url": paths.default_engine_url(environ)},
    }
    return Layer(data, names)


def env_layer(model: type[BaseModel], environ: Mapping[str, str], cwd: Path) -> Layer:
    """``MARATHOND_SECTION__KEY``; a variable of that shape that is no key is a problem, not ignored."""
    known = {paths.env_name(section, key): (section, key) for section, key in _keys(model)}
    data: dict[str, dict[str, Any]] = {}
    names: dict[KeyPath, str] = {}
    problems: list[ConfigError] = []
    for name, text in sorted(paths.env_settings(environ).items()):
        if name not in known:
            table = name.removeprefix(paths.ENV_PREFIX).partition(paths.ENV_DELIMITER)[0].lower()
            hint = f"{table} are set in the file only" if table in TABLES else "no such setting"
            problems.append(ConfigError(f"env {name}", "", hint + _variable_hint(name, known)))
            continue
        section, key = known[name]
        names[section, key] = f"env {name}"
        try:
            data.setdefault(section, {})[key] = _from_text(model, (section, key), text, f"env {name}")
        except ConfigError as error:
            problems.append(error)
    return Layer(_absolute(data, cwd, environ), names, raw=data, problems=tuple(problems))


def _variable_hint(name: str, known: Iterable[str]) -> str:
    """The prefix that all variables share would make every two of them look alike."""
    hint = did_you_mean(name.removeprefix(paths.ENV_PREFIX), (one.removeprefix(paths.ENV_PREFIX) for one in known))
    return hint.replace("mean ", f"mean {paths.ENV_PREFIX}")


def override_layer(model: type[BaseModel], overrides: Mapping[str, object], cwd: Path, environ: Mapping[str, str]) -> Layer:
    """Dotted keys; ``arms.NAME.key`` and ``scores.TASK.key`` too.  Text is read like the environment's, anything else is taken as it is."""
    data: dict[str, Any] = {}
    names: dict[KeyPath, str] = {}
    problems: list[ConfigError] = []
    for dotted, value in overrides.items():
        path = tuple(dotted.split("."))
        if len(path) != (3 if path[0] in TABLES else 2) or not all(path):
            problems.append(ConfigError("override", dotted, "must be section.key, or arms.NAME.key, or scores.TASK.key"))
            continue
        names[path] = "override"
        table = data
        for part in path[:-1]:
            table = table.setdefault(part, {})
        try:
            table[path[-1]] = _from_text(model, path, value, "override") if isinstance(value, str) else value
        except ConfigError as error:
            problems.append(error)
    return Layer(_absolute(data, cwd, environ), names, raw=data, problems=tuple(problems))


def _keys(model: type[BaseModel]) -> list[tuple[str, str]]:
    sections = ((name, as_model(info.annotation)) for name, info in model.model_fields.items())
    return [(name, key) for name, section in sections if section is not None for key in section.model_fields]


def as_model(annotation: Any) -> type[BaseModel] | None:
    """The model behind an annotation that is one, else None."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def members(annotation: Any) -> list[Any]:
    """``X | None`` → [X, None]; ``Annotated[X, …]`` → [X]."""
    if typing.get_origin(annotation) is typing.Annotated:
        return members(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return [kind for part in typing.get_args(annotation) for kind in members(part)]
    return [annotation]


def _annotation(model: type[BaseModel], path: KeyPath) -> Any:
    """Annotation of the field at ``path``; None when there is no such field (the models will say so)."""
    annotation: Any = model
    for part in path:
        if (section := as_model(annotation)) is not None:
            info = section.model_fields.get(str(part))
            if info is None:
                return None
            annotation = info.annotation
        elif typing.get_origin(annotation) is dict:
            annotation = typing.get_args(annotation)[1]
        else:
            return None
    return annotation


def _from_text(model: type[BaseModel], path: KeyPath, text: str, where: str) -> Any:
    """Text as what its field wants; text that does not fit stays text, and the model says what it expected."""
    kinds = members(_annotation(model, path))
    if type(None) in kinds and (not text or (text == "none" and str not in kinds)):  # "none" is a name where names are meant
        return None
    if any(typing.get_origin(kind) in {tuple, dict} for kind in kinds):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ConfigError(where, ".".join(map(str, path)) + f" = {text}", f"must be JSON: {error}") from error
    if bool in kinds and text.lower() in _FALSE | _TRUE:
        return text.lower() in _TRUE
    return number_or_text(text) if int in kinds or float in kinds else text


def _absolute(data: Mapping[str, Any], base: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """A copy in which every key that is a path is absolute; whatever is not text stays as it is."""
    whole: dict[str, Any] = dict(data)

    def path(value: Any) -> Any:
        return str(paths.absolute(value, base, environ)) if isinstance(value, str) and value else value

    def pattern(value: Any) -> Any:
        magic = isinstance(value, str) and glob.has_magic(value) and not value.startswith("~")
        return str(paths.absolute(value, Path(glob.escape(str(base))), environ)) if magic else path(value)

    def named_by_path(value: Any) -> bool:
        return isinstance(value, str) and paths.names_a_file(value)

    def change(table: Any, key: str, how: Callable[[Any], Any]) -> Any:
        return {**table, key: how(table[key])} if isinstance(table, Mapping) and key in table else table

    def each(how: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda values: [how(value) for value in values] if isinstance(values, list | tuple) else values

    for key in paths.PATH_KEYS:
        if "daemon" in whole:
            whole["daemon"] = change(whole["daemon"], key, path)
    if "campaign" in whole:
        campaign = change(change(whole["campaign"], "tasks", each(pattern)), "digests", path)
        whole["campaign"] = change(campaign, "benchmark", lambda value: path(value) if named_by_path(value) else value)
    if "codex" in whole:
        whole["codex"] = change(whole["codex"], "folder", path)
    if "loopx" in whole:
        loopx = change(change(whole["loopx"], "wheel", path), "node_folder", path)
        whole["loopx"] = change(loopx, "python", lambda value: value if str(value).startswith(UV) else path(value))
    if isinstance(gateway := whole.get("gateway"), Mapping) and isinstance(routes := gateway.get("routes"), Mapping):
        files = {name: change(change(route, "key_file", path), "ca_file", path) for name, route in routes.items()}
        whole["gateway"] = {**gateway, "routes": files}
    if isinstance(arms := whole.get("arms"), Mapping):
        sources = each(lambda mount: change(mount, "source", path))
        whole["arms"] = {name: change(arm, "mounts", sources) for name, arm in arms.items()}
    return whole
