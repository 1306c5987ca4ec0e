"""The same eight no-op trials under Harbor 0.26: one task, a public network, an existing image, agent ``nop``, four at a time.

Harbor runs from its own environment (:mod:`tests.support.harbor_env`, profile ``full``) and shells out to ``docker compose`` v2, which is
taken from Debian 13's package where this machine's docker has none.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

from marathond.demo.base_image import debian_mirror
from marathond.demo.host import SetupError, need_tools, run_logged, say, tail
from tests.bench.bare_calls import AT_ONCE, TRIALS, VERIFIER
from tests.support.harbor_env import CACHE, harbor_env

RUN_S = 600.0
TASK_TOML = """version = "1.0"
[agent]
timeout_sec = 60.0
[verifier]
timeout_sec = 60.0
[environment]
docker_image = "{image}"
network_mode = "public"
"""
_APT_CONF = """Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{folder}/sources";
Dir::State::lists "{folder}/lists";
Dir::Cache "{folder}/cache";
APT::Sandbox::User "root";
"""


def compose_plugins() -> Path | None:
    """A DOCKER_CONFIG folder whose docker CLI has compose v2; None when the machine's own has it.  Raises SetupError."""
    log = CACHE / "compose.log"
    need_tools({"docker": "docker-cli|docker.io"}, log)
    if subprocess.run(["docker", "compose", "version"], capture_output=True, timeout=30, check=False).returncode == 0:
        return None
    config = CACHE / "docker-config"
    plugin = config / "cli-plugins" / "docker-compose"
    if not plugin.exists():
        say("fetching docker compose from Debian 13's packages")
        folder = CACHE / "apt"
        for part in ("sources", "lists/partial", "cache/archives/partial", "unpacked"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "apt.conf").write_text(_APT_CONF.format(folder=folder))
        if (mirror := debian_mirror()) is None:
            raise SetupError("docker compose v2 is needed for Harbor; install it (set-up fetches it itself on Debian only)")
        key = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
        (folder / "sources" / "trixie.list").write_text(f"deb [{key}] {mirror} trixie main\n")
        env = {"APT_CONFIG": str(folder / "apt.conf")}
        script = 'cd "$0" && apt-get -q update && apt-get -q download docker-compose && dpkg-deb -x docker-compose_*.deb unpacked'
        if run_logged(["sh", "-c", script, str(folder)], log, 300, env) != 0:
            raise SetupError(f"docker compose could not be fetched; whole output: {log}", tail(log))
        plugin.parent.mkdir(parents=True, exist_ok=True)
        (folder / "unpacked/usr/libexec/docker/cli-plugins/docker-compose").rename(plugin)
    return config


def write_task(folder: Path, image: str) -> Path:
    """The no-op task as a Harbor task directory."""
    task = folder / "no-op"
    for part in ("environment", "tests"):
        (task / part).mkdir(parents=True)
    (task / "task.toml").write_text(TASK_TOML.format(image=image))
    (task / "instruction.md").write_text("Do nothing.\n")
    (task / "tests" / "test.sh").write_text(VERIFIER)
    (task / "tests" / "test.sh").chmod(0o755)
    return task


def measure(image: str) -> float:
    """Seconds that ``harbor run`` takes for the eight trials, its start included.  Raises RuntimeError unless all eight score 1.

    DOCKER_HOST tells the engine.  One round: it is long, and only a factor of several is read from it.
    """
    with tempfile.TemporaryDirectory(prefix="marathond-bench-") as scratch:
        return run(write_task(Path(scratch), image), Path(scratch), "nop", TRIALS, AT_ONCE)


def run(task: Path, folder: Path, agent: str, trials: int, at_once: int) -> float:
    """Seconds of ``harbor run`` with ``trials`` of ``task``, which lies below ``folder``; as :func:`measure`."""
    env = harbor_env("full")
    plugins = compose_plugins()
    variables = env.environment() | ({"DOCKER_CONFIG": str(plugins)} if plugins else {})
    jobs = folder / "jobs"
    argv = ["harbor", "run", "-p", str(task), "-a", agent, "-k", str(trials), "-n", str(at_once), "-o", str(jobs)]
    argv += ["--job-name", "bench", "--yes", "--quiet"]
    engine = os.environ["DOCKER_HOST"]
    sockets = [Path(engine.removeprefix("unix://"))] if engine.startswith("unix://") else []
    tools = [Path(p) for p in ("/usr/bin/docker", "/usr/local/bin/docker", "/usr/libexec/docker") if Path(p).exists()]
    start = time.perf_counter()
    done = subprocess.run(
        env.command(argv, [folder, *sockets, *tools], folder),
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    seconds = time.perf_counter() - start
    rewards = [_reward(path) for path in sorted((jobs / "bench").glob("*/result.json"))]
    if done.returncode != 0 or rewards != [1.0] * trials:
        raise RuntimeError(f"harbor run: exit {done.returncode}, rewards {rewards}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return seconds


def _reward(result: Path) -> float | None:
    rewards = (json.loads(result.read_text()).get("verifier_result") or {}).get("rewards") or {}
    value = rewards.get("reward")
    return None if value is None else float(value)
