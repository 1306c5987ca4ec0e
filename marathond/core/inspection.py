"""Is the container what we asked for?  Pure comparison of a spec with what the engine shows.

Owns the rule that a proxy nobody asked for makes an environment dirty (fault b13): an image's ENV, an engine or a client may bring one.
Must not know how either was obtained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from marathond.core.proxies import EXCEPTIONS, proxies_in


class Wanted(Protocol):
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def network(self) -> str | None: ...
    @property
    def image_id(self) -> str: ...
    @property
    def cpus(self) -> float | None: ...
    @property
    def memory_mb(self) -> int | None: ...
    @property
    def pids(self) -> int | None: ...


class Shown(Protocol):
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def network_mode(self) -> str: ...
    @property
    def image_id(self) -> str: ...
    @property
    def running(self) -> bool: ...
    @property
    def status(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def env(self) -> tuple[str, ...]: ...
    @property
    def cpus(self) -> float | None: ...
    @property
    def memory_mb(self) -> int | None: ...
    @property
    def pids(self) -> int | None: ...


def problems(shown: Shown, wanted: Wanted, *, allowed_env: frozenset[str]) -> tuple[str, str] | None:
    """Void code and one line of evidence, or None when all is as asked.

    :param allowed_env: variables that the task, the arm or the configuration sets.  Proxies among them are their own business, but not in
        a container without network: there one can only have slipped in, as by ``env = { HTTP_PROXY = "${HTTP_PROXY}" }``.
    """
    if not shown.running:
        return "container_failed", f"the container does not run: {shown.status}, exit {shown.exit_code}"
    missing = [f"{k}={v}" for k, v in wanted.labels.items() if shown.labels.get(k) != v]
    if missing:
        return "environment_mismatch", f"labels missing or different: {', '.join(missing)}"
    mode = wanted.network or "none"
    if shown.network_mode != mode:
        return "environment_mismatch", f"network mode is {shown.network_mode}, asked for {mode}"
    if shown.image_id != wanted.image_id:
        return "environment_mismatch", f"image is {shown.image_id}, asked for {wanted.image_id}"
    if not _same_cpus(shown.cpus, wanted.cpus):
        return "environment_mismatch", f"cpus are {_limit(shown.cpus)}, asked for {_limit(wanted.cpus)}"
    if shown.memory_mb != wanted.memory_mb:
        return "environment_mismatch", f"memory_mb is {_limit(shown.memory_mb)}, asked for {_limit(wanted.memory_mb)}"
    if shown.pids != wanted.pids:
        return "environment_mismatch", f"the limit of pids is {_limit(shown.pids)}, asked for {_limit(wanted.pids)}"
    found = proxies_in({name: value for name, _, value in (item.partition("=") for item in shown.env)})
    dirty = sorted(name for name in found if name not in allowed_env)
    if dirty:
        return "environment_dirty", f"proxy settings in the running container that nobody asked for: {', '.join(dirty)}"
    useless = sorted(name for name in found if name.lower() not in EXCEPTIONS) if wanted.network is None else []
    if useless:
        return "environment_dirty", f"proxy settings in a container without network, set by the task or the arm: {', '.join(useless)}"
    return None


def _same_cpus(shown: float | None, wanted: float | None) -> bool:
    """Docker keeps billionths of a core: two equal limits need not be the same float."""
    return shown == wanted if shown is None or wanted is None else abs(shown - wanted) < 1e-6


def _limit(value: float | None) -> str:
    return "unlimited" if value is None else f"{value:g}"
