"""The values of ``[environment]``: image, sizes, variables, health check.

Owns how each of them is written in a task.toml (Harbor 0.26.0 and older).  Must not know the other sections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from marathond.core.errors import ConfigError
from marathond.core.judge import is_placeholder
from marathond.core.model import Healthcheck
from marathond.tasks.digest import Kind, Tree
from marathond.tasks.fields import Section, show, show_key

ENVIRONMENT_KEYS = frozenset(
    [
        "build_timeout_sec",
        "docker_image",
        "os",
        "cpus",
        "memory_mb",
        "storage_mb",
        "gpus",
        "gpu_types",
        "tpu",
        "mcp_servers",
        "env",
        "skills_dir",
        "healthcheck",
        "workdir",
        "allow_internet",
        "network_mode",
        "allowed_hosts",
        "memory",
        "storage",
    ]
)
_HEALTHCHECK_KEYS = frozenset(["command", "interval_sec", "timeout_sec", "start_period_sec", "start_interval_sec", "retries"])
MAX_SIZE_MB = 1 << 40
MIN_MEMORY_MB = 6
"""Docker refuses to make a container with less (20.10 and 28.5: "Minimum memory limit allowed is 6MB")."""
MIN_CPUS = 0.01
"""The same for cores: below 1 ms in 100 the kernel refuses the quota (cpu.cfs_quota_us: invalid argument)."""
MIN_INTERVAL_S = 0.05
"""Between two health checks: without a pause a check that fails at once would keep the engine busy with nothing else."""
MAX_RETRIES = 1000
MAX_START_PERIOD_S = 86400.0
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,1023}")
TEMPLATE = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}", re.DOTALL)
_SIZE_UNITS_MB = {"G": 1024.0, "M": 1.0, "K": 1 / 1024}


def has_file(tree: Tree, relative: str) -> bool:
    """Whether ``relative`` is a regular file, links inside the task followed."""
    entry = tree.resolve(relative)
    return entry is not None and entry.kind is Kind.FILE


def image_of(environment: Section, tree: Tree) -> tuple[str | None, bool]:
    """The declared image (it wins) and whether there is a Dockerfile; one of the two must be."""
    image = (environment.text("docker_image") or "").strip() or None
    if image is not None and not _is_reference(image):
        raise environment.wrong("docker_image", "must be an image reference")
    has_dockerfile = has_file(tree, "environment/Dockerfile")
    if image is None and not has_dockerfile:
        raise ConfigError("task.toml: environment.docker_image", "missing", "an image, or environment/Dockerfile")
    return image, has_dockerfile


def _is_reference(image: str) -> bool:
    """Docker's own grammar, loosely: the name becomes part of a request's path, so nothing that leads elsewhere in the API may pass."""
    return bool(_IMAGE.fullmatch(image)) and not any(part in ("", ".", "..") for part in image.split("/"))


def workdir_of(environment: Section) -> str | None:
    """The working directory in the container, absolute."""
    workdir = environment.text("workdir")
    if workdir is not None and not workdir.startswith("/"):
        raise environment.wrong("workdir", "must be an absolute path")
    return workdir


def size_mb(environment: Section, key: str) -> int | None:
    """``<key>_mb``, or the deprecated ``<key>`` with a unit, in mebibytes."""
    modern = environment.integer(f"{key}_mb")
    if not environment.has(key):
        return modern
    if not isinstance(environment.table[key], str):
        environment.note(key, f"deprecated and not text, ignored as Harbor does; use {key}_mb")
        return modern
    text = (environment.text(key) or "").strip().upper()
    unit = _SIZE_UNITS_MB.get(text[-1:])
    try:
        size_mb = float(text[:-1]) * (unit or 0.0)
    except ValueError:
        size_mb = 0.0
    if not 1 <= size_mb <= MAX_SIZE_MB:
        raise environment.wrong(key, 'must be a size such as "16G" or "2048M"')
    if modern is not None and modern != int(size_mb):
        raise environment.wrong(key, f"must not contradict {key}_mb = {modern}")
    environment.note(key, f"deprecated, read as {key}_mb = {int(size_mb)}")
    return int(size_mb)


def memory_of(environment: Section) -> int | None:
    """``memory_mb`` in mebibytes, at least what Docker can give a container."""
    memory_mb = size_mb(environment, "memory")
    if memory_mb is not None and memory_mb < MIN_MEMORY_MB:
        key = "memory_mb" if environment.has("memory_mb") else "memory"
        raise environment.wrong(key, f"must be at least {MIN_MEMORY_MB} MiB, Docker gives no container less")
    return memory_mb


def cpus_of(environment: Section) -> float | None:
    """``cpus``, at least what Docker can give a container."""
    cpus = environment.number("cpus")
    if cpus is not None and cpus < MIN_CPUS:
        raise environment.wrong("cpus", f"must be at least {MIN_CPUS:g}, Docker gives no container less")
    return cpus


def env_of(section: Section, environ: Mapping[str, str], *, verifier: bool = False) -> dict[str, str]:
    """The ``env`` table; a value that is wholly ``${VAR}`` or ``${VAR:-default}`` is looked up, anything else is taken as it stands.

    :param verifier: a variable that is kept for verifiers (core/judge.py) may be had here; elsewhere it is not set.
    """
    table = section.section("env")
    seen = environ if verifier else {name: value for name, value in environ.items() if not is_placeholder(value)}
    return {_env_name(table, key): _env_value(table, key, seen) for key in table.table}


def _env_name(table: Section, key: str) -> str:
    if not key or "=" in key or "\0" in key:
        raise ConfigError(f"task.toml: {table.name}", show(key), "a name of a variable")
    return key


def _env_value(table: Section, key: str, environ: Mapping[str, str]) -> str:
    value = table.text(key) or ""
    template = TEMPLATE.fullmatch(value)
    if template is None:
        return value
    variable, default = template[1], template[2]
    if variable in environ:
        return environ[variable]
    if default is None:
        raise ConfigError(f"task.toml: {table.name}.{show_key(key)}", f"needs {show_key(variable)}", "that variable set, or a default")
    return default


def healthcheck_of(environment: Section) -> Healthcheck | None:
    """The health check with the format's defaults, or None."""
    if not environment.has("healthcheck"):
        return None
    table = environment.section("healthcheck")
    table.note_unknown(_HEALTHCHECK_KEYS)
    command = table.text("command")
    if command is None or not command.strip():
        raise table.wrong("command", "must be a shell command")
    plain = Healthcheck(command)
    return Healthcheck(
        command,
        interval_s=_between(table, "interval_sec", table.number("interval_sec", at_least=0), plain.interval_s, low=MIN_INTERVAL_S),
        timeout_s=_or(table.number("timeout_sec"), plain.timeout_s),
        start_period_s=_between(
            table, "start_period_sec", table.number("start_period_sec", at_least=0), plain.start_period_s, high=MAX_START_PERIOD_S
        ),
        start_interval_s=_between(
            table, "start_interval_sec", table.number("start_interval_sec", at_least=0), plain.start_interval_s, low=MIN_INTERVAL_S
        ),
        retries=int(_between(table, "retries", table.integer("retries"), plain.retries, high=MAX_RETRIES)),
    )


def _between(table: Section, key: str, value: float | None, default: float, *, low: float = 0.0, high: float = float("inf")) -> float:
    """What was written, or the default; brought into the bounds, with a note."""
    if value is None:
        return default
    bounded = min(max(value, low), high)
    if bounded != value:
        table.note(key, f"{show(table.table[key])} is out of bounds, {bounded:g} is used")
    return bounded


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
