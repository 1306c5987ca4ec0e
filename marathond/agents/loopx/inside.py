"""Runs inside a trial's container, under the profile's own Python: LoopX's CLI, several calls in one process, and a look around.

Handed over as text (:mod:`marathond.agents.loopx.commands`), so it imports the standard library and LoopX alone, and nothing of this
package.  Owns what is asked there and how it is told; what it means is decided outside.

Each call is the whole CLI in a process of its own, forked from one that has imported what many calls share.

    python -I -c TEXT '{"root": …, "calls": [[…], …], "look": …, "document": …, "timeout_s": …}'    ->    last line: MARK and a JSON object
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

MARK = "marathond-loopx "
OUTPUT_AT_MOST = 1 << 18
PATHS_S, FOUND_AT_MOST = 20, 20
WARM_TRIES, WARM_PAUSE_S = 4, 0.2
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "NODE_OPTIONS", "NODE_PATH")
"""An image sets them for its own programs; LoopX's Python and Node would fail by them, in its arms alone."""
MANY = 4
"""So many calls are quicker with all of the CLI imported before, which takes a second; few find their own part of it."""
READBACK = ("ready", "status", "missing_skill_ids", "digest_mismatches", "version_marker_mismatches", "loopx_version", "reason")

FIND = """
import sys
sys.path[:] = [p for p in sys.path if p]
try:
    from importlib.util import find_spec
except ImportError:
    from pkgutil import find_loader as find_spec
spec = find_spec("loopx")
print(getattr(spec, "origin", spec) or "")
try:
    from importlib.metadata import distributions
    print("\\n".join(str(d._path) for d in distributions() if (d.metadata["Name"] or "").lower() == "loopx"))
except ImportError:
    pass
"""
"""For a Python of the image: whether a LoopX can be imported there, or is left over there.  Its own folder is no place of the image."""


def environment(root: str) -> None:
    """LoopX's own, as the wrapper ``bin/loopx`` sets it."""
    path = os.environ.get("PATH", os.defpath)
    home = f"{root}/home"
    os.environ.update(PATH=f"{root}/node/bin:{root}/bin:{path}", HOME=home, TMPDIR=home, TMP=home, TEMP=home, LOOPX_USAGE_PING="0")
    for name in FOREIGN:
        os.environ.pop(name, None)
    tempfile.tempdir = home


def call(cli: str, argv: list[str], limit_s: int) -> dict[str, Any]:
    """One call of the CLI: exit code, stdout, stderr and duration.  It ends itself after ``limit_s``, whatever became of its parent."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            status = 1
            signal.alarm(limit_s)
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.argv = [cli, *argv]
                status = int(importlib.import_module("loopx.entrypoint").main() or 0)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    sys.stderr.write(end.code)
            except BaseException:  # noqa: BLE001 - the process ends here, and says why
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, ended = os.waitpid(pid, 0)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read(OUTPUT_AT_MOST + 1).decode("utf-8", errors="replace"))
    ms = int((time.monotonic() - began) * 1000)
    return {"exit": os.waitstatus_to_exitcode(ended), "out": texts[0], "err": texts[1][-2000:], "ms": ms}


def warm(limit_s: int) -> None:
    """LoopX's daemon up and answering, before anything is written through it: a request that meets one which is still compiling its
    sources on a busy host is given up after ten seconds, and may have been carried out.  Whether it is there the calls will say."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(limit_s)
        runtime = importlib.import_module("loopx.control_plane.effect_runtime")
        for _ in range(WARM_TRIES):
            try:
                runtime.effect_runtime_result("runtime.ping", {})
            except Exception:  # noqa: BLE001 - asked again, or told of by the first call
                time.sleep(WARM_PAUSE_S)
            else:
                break
        os._exit(0)
    os.waitpid(pid, 0)


def calls(cli: str, wanted: list[list[str]], limit_s: int, *, begins: bool) -> list[dict[str, Any]]:
    """In their order, up to the first that fails.  ``begins``: they are a trial's first."""
    importlib.import_module("loopx.cli_runtime")
    if len(wanted) >= MANY:
        importlib.import_module("loopx.cli")
    done: list[dict[str, Any]] = []
    for argv in wanted:
        if begins and "doctor" not in argv:
            warm(limit_s)
            begins = False
        done.append(call(cli, argv, limit_s))
        if done[-1]["exit"] != 0:
            break
    return done


def shells() -> dict[str, str]:
    """What PATH a shell's command sees, as codex starts one: plain and as a login shell.  A shell that fails has none."""
    found: dict[str, str] = {}
    for name in ("sh", "bash"):
        program = shutil.which(name)
        for flag in ("-c", "-lc") if program else ():
            try:
                command = [str(program), flag, 'printf "\\n%s%s" "=PATH=" "$PATH"']
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATHS_S, check=False)
            except (OSError, subprocess.TimeoutExpired):
                continue
            _, mark, path = done.stdout.rpartition("=PATH=")
            if mark:
                found[f"{name} {flag}"] = path
    return found


def programs(paths: dict[str, str], pattern: str) -> list[Path]:
    """Executables on any of them whose name fits."""
    fits = re.compile(pattern)
    found: list[Path] = []
    for folder in dict.fromkeys(part or "." for path in paths.values() for part in path.split(":")):
        try:
            there = sorted(Path(folder).iterdir())
            found += [at for at in there if fits.fullmatch(at.name) and os.access(at, os.X_OK) and not at.is_dir()]
        except OSError:
            continue
    return found


def same(one: str | Path, other: str | Path) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def look(root: str, cli: str) -> dict[str, Any]:
    """What the agent's commands would find of LoopX; of the profile: its versions, and copies on its Python's path."""
    paths = shells()
    bare = {shell: shutil.which("loopx", path=path) or "" for shell, path in paths.items()}
    copies = [str(at) for at in programs(paths, "loopx") if not same(at, cli)]
    seen: set[Path] = set()
    for python in programs(paths, r"python(\d+(\.\d+)?)?"):
        real = python.resolve()
        if real in seen or real.is_relative_to(root):
            continue
        seen.add(real)
        try:
            done = subprocess.run([str(python), "-B", "-c", FIND], capture_output=True, text=True, timeout=PATHS_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue  # a Python that does not run imports nothing
        copies += [f"{python}: {line}" for line in done.stdout.splitlines() if line.strip()]
    return {"bare": {shell: at if same(at, cli) else "" for shell, at in bare.items()}, "copies": copies[:FOUND_AT_MOST], **own()}


def own() -> dict[str, Any]:
    """Of the profile's own Python, found without importing LoopX."""
    places: list[str] = []
    leftover = re.compile(r"loopx(\.py|-.*\.(dist|egg)-info|\.egg-link)?|__editable__.*loopx.*\.pth", re.IGNORECASE)
    for folder in dict.fromkeys(sys.path):
        if Path(folder).is_dir():
            places += [str(at) for at in sorted(Path(folder).iterdir()) if leftover.fullmatch(at.name)]
    versions = sorted({d.version for d in importlib.metadata.distributions() if (d.metadata["Name"] or "").lower() == "loopx"})
    return {"places": places, "versions": versions}


def skills(folder: str) -> dict[str, Any]:
    """Upstream's required ids, by its own constant, and its own reading of what lies in ``folder``."""
    native = importlib.import_module("loopx.capabilities.benchmark_toolkit.native_codex_profile")
    reading = importlib.import_module("loopx.skill_install_readback")
    required = list(native.NATIVE_CODEX_PROFILE_REQUIRED_SKILL_IDS)
    found = reading.inspect_skill_install_readback(skills_dir=Path(folder), required_skill_ids=required)
    return {"required": required, "readback": {key: found.get(key) for key in READBACK}}


def version(cli: str) -> str:
    """What the wrapper says, as the agent would call it."""
    try:
        done = subprocess.run([cli, "--version"], capture_output=True, text=True, timeout=PATHS_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return done.stdout.strip() if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip()[-500:]}"


def node() -> dict[str, Any]:
    """Upstream's own probe, and the least version by its own constant."""
    probing = importlib.import_module("loopx.control_plane.runtime.node_probe")
    seen = probing.probe_node()
    least = ".".join(str(part) for part in probing.MINIMUM_NODE_VERSION)
    return {"outcome": str(seen.outcome.value), "version": seen.version or "", "at": seen.executable or "", "least": least}


def sqlite() -> str:
    """Empty when it works."""
    try:
        database = importlib.import_module("sqlite3").connect(":memory:")
        database.execute("SELECT 1").fetchone()
        database.close()
    except Exception as error:  # noqa: BLE001 - its word is the answer
        return f"{type(error).__name__}: {error}"
    return ""


def write(path: str, source: str) -> None:
    """A copy of ``source``, in folders that are made."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, path)


def main(asked: dict[str, Any]) -> dict[str, Any]:
    root, cli = asked["root"], f"{asked['root']}/bin/loopx"
    limit_s = int(asked["timeout_s"])
    signal.alarm(limit_s)
    if asked["look"]:
        told = {"look": look(root, cli), "version": version(cli), "python": platform.python_version(), "sqlite": sqlite()}
        environment(root)
        # Without sqlite3 LoopX cannot be imported, or only half of it.
        return told if told["sqlite"] else {**told, "node": node(), "skills": skills(f"{os.environ['CODEX_HOME']}/skills")}
    environment(root)
    if asked["document"]:
        write(*asked["document"])
    return {"calls": calls(cli, asked["calls"], limit_s, begins=bool(asked["document"]))}


if __name__ == "__main__":
    sys.stdout.write(f"\n{MARK}{json.dumps(main(json.loads(sys.argv[1])))}\n")
