"""Task folders as a shipped profile knows them, without a byte of the benchmark in them."""

from __future__ import annotations

from pathlib import Path

from marathond.core.benchmark import Mark
from marathond.service import benchmark
from tests.support.rig import make_task

SEPARATE = "excel-clone"
"""The task of SWE-Marathon that gets a verifier of its own here."""


def known(name: str = "swe-marathon") -> benchmark.Benchmark:
    return benchmark.read(benchmark.SHIPPED / f"{name}.toml", Path("/"))


def make_benchmark(root: Path, *, leave_out: tuple[str, ...] = (), separate: str = SEPARATE) -> Path:
    """SWE-Marathon's twenty by name, with the limits, sizes and marks of the profile; ``separate`` has a separate verifier."""
    for name, task in known().profile.tasks.items():
        if name in leave_out:
            continue
        sizes = f"cpus = {task.cpus}\nmemory_mb = {int((task.memory_gb or 0) * 1024)}\nbuild_timeout_sec = {task.build_s}\n"
        folder = make_task(
            root,
            name,
            network="no-network" if Mark.OFFLINE in task.marks else "public",
            environment=sizes + ("gpus = 1\n" if Mark.GPU in task.marks else ""),
            agent_s=task.agent_s or 0,
            verifier_s=task.verifier_s or 0,
        )
        if name == separate:
            mend(folder, "[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n')
            (folder / "tests/Dockerfile").write_text("FROM scratch\n")
    return root


def mend(folder: Path, old: str, new: str) -> None:
    """Change one line of a task's task.toml."""
    text = (folder / "task.toml").read_text()
    assert old in text
    (folder / "task.toml").write_text(text.replace(old, new, 1))
