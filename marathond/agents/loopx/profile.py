"""Where LoopX's profile lies in a container, and what an image must be able to run for it.

Owns the paths.  They are fixed, for the profile was built for them (a venv's paths are absolute): one read-only mount, and below it the
writable folders of the trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from marathond.core.errors import GateFailed
from marathond.core.model import LoopXArm, Mount
from marathond.ports.agent import ImageCheck, RunDir

ROOT = "/opt/lxprofile"
CLI = f"{ROOT}/bin/loopx"
PYTHON = f"{ROOT}/releases/native-goal-profile/bin/python"
NODE = f"{ROOT}/node/bin/node"
SKILLS = f"{ROOT}/codex-home/skills"
CODEX_HOME = "/marathond/codex"
"""Of the agent's codex (codex/gates.py; a test compares)."""
AGENT_SKILLS = f"{CODEX_HOME}/skills"
"""The same skills where the agent's codex looks for them: read-only, so that no agent rewrites its own treatment (fault c11)."""
COMMAND = "/usr/local/bin/loopx"
"""The wrapper once more, so that a bare ``loopx`` works in the agent's shells, a login shell, which sets PATH anew, among them."""
HOME, STATE = f"{ROOT}/home", f"{ROOT}/state"
"""HOME and TMPDIR of LoopX's own calls; its registry, runtime and goal, unless they lie in the task's tree (goal.py)."""
FOLDERS = ("home", "state")
"""Below ``run_dir.harness``."""

LOADER = ("LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables of an image's own programs, by which ours would not even start."""
CAN_RUN = f"""
unset {" ".join(LOADER)} NODE_OPTIONS
case ":$PATH:" in *:{COMMAND.rpartition("/")[0]}:*) ;; *) echo "PATH=$PATH does not hold {COMMAND.rpartition("/")[0]}"; exit 1 ;; esac
(IFS=:; for at in $PATH; do
    [ ! -f "$at/loopx" ] || [ "$at/loopx" -ef {CLI} ] || {{ echo "a LoopX of the image's own: $at/loopx"; exit 1; }}
done) || exit 1
{PYTHON} -c 'import sqlite3, ssl, sys; sqlite3.connect(":memory:").execute("select 1"); print("python", sys.version.split()[0])' || exit 1
printf 'node ' && {NODE} --version
"""


def below_state(path: str) -> str | None:
    """A path in the container as one below ``run_dir.harness / "state"``; None: it lies elsewhere, in the task's tree."""
    return path.removeprefix(f"{STATE}/") if path.startswith(f"{STATE}/") else None


def tree(arm: LoopXArm, staged: Mapping[str, Path]) -> Path:
    """The staged profile on the host.  Raises GateFailed when it is not staged."""
    found = staged.get(arm.package)
    if found is None:
        raise GateFailed("gate_failed", f"loopx {arm.package} is not staged here: marathonctl stage")
    return found


def mounts(arm: LoopXArm, run_dir: RunDir, staged: Mapping[str, Path]) -> tuple[Mount, ...]:
    """The profile, below it what the trial may write, its skills for codex, its command.  Raises GateFailed when it is not staged."""
    own = (Mount(str(run_dir.harness / name), f"{ROOT}/{name}", read_only=False) for name in FOLDERS)
    staged_at = tree(arm, staged)
    skills = Mount(str(staged_at / "codex-home" / "skills"), AGENT_SKILLS)
    return (Mount(str(staged_at), ROOT), *own, skills, command(staged_at))


def command(staged_at: Path) -> Mount:
    return Mount(str((staged_at / "bin" / "loopx").resolve()), COMMAND)


def image_check(arm: LoopXArm, staged: Mapping[str, Path]) -> ImageCheck:
    """An image with another libc, or an older glibc, cannot run them, nor can one whose files stand where the command goes, or that brings
    a LoopX on its PATH.  Raises GateFailed when it is not staged."""
    mounted = (Mount(str(staged_at := tree(arm, staged)), ROOT), command(staged_at))
    return ImageCheck(f"LoopX {arm.version}'s Python and Node", mounted, ("sh", "-c", CAN_RUN))
