"""A LoopX of a few files, for what staging does with it: a wheel of the same shape, a Node that is a script, a Python cut down.

The whole one takes half a minute to stage, most of it to compile what the proofs never import.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from marathond.core.errors import StageError
from marathond.staging import store

VERSION = "2.1.1"
WHEEL = f"loopx-{VERSION}-py3-none-any.whl"


def wheel(folder: Path, *, version: str = VERSION, extra: Mapping[str, str] | None = None, skills: str = "loopx") -> Path:
    """A LoopX that knows what staging asks of it, and nothing else."""
    writes = "\n".join(
        [
            "import json, os, pathlib, subprocess, sys",
            'left = [sys.executable, "-c", "import time; time.sleep(600)", os.environ["HOME"] + "/daemon"]',
            "def main():\n    subprocess.Popen(left, start_new_session=True)",
            '    target = pathlib.Path(sys.argv[sys.argv.index("--skills-dir") + 1])',
            f'    (target / "{skills}").mkdir(); (target / "{skills}" / "SKILL.md").write_text("x")',
            '    (target / ".loopx-skill-install.json").write_text(json.dumps({"installed_at": "now"}))',
            '    (target / ".loopx-workflow-skills.lock").touch()',
            'if __name__ == "__main__":\n    main()\n',
        ]
    )
    info = f"loopx-{version}.dist-info"
    files = {
        "loopx/__init__.py": "",
        "loopx/entrypoint.py": writes,
        "loopx/capabilities/benchmark_toolkit/native_codex_profile.py": 'NATIVE_CODEX_PROFILE_REQUIRED_SKILL_IDS = ("loopx",)\n',
        "loopx/control_plane/runtime/node_probe.py": "MINIMUM_NODE_VERSION = (22, 22, 3)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: loopx\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nloopx = loopx.entrypoint:main\n",
        **(extra or {}),
    }
    path = folder / f"loopx-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        rows = [f"{name},sha256={digest(text)},{len(text)}" for name, text in files.items()]
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join([*rows, f"{info}/RECORD,,\n"]))
    return path


def digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def node(folder: Path, said: str = "v22.23.3") -> Path:
    program = folder / "bin" / "node"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {said}\n")
    program.chmod(0o755)
    return folder


def small(folder: Path, python: Path) -> store.WantedLoopX:
    return store.WantedLoopX(VERSION, None, wheel(folder), None, "22.23.3", None, node(folder / "node"), str(python))


def cut_down(source: Path, small: Path) -> Path:
    """The relocatable Python ``source``, with no more of its library than staging needs, as the new folder ``small``."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); "
    code += "import argparse, compileall, email.parser, email.policy, py_compile, subprocess, os; "
    code += "import hashlib, importlib.metadata, json, pathlib, runpy, sqlite3, ssl, zlib; "
    code += "print('\\n'.join(m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)))"
    run = [str(source / "bin" / "python3.11"), "-B", "-I", "-c", code, str(source)]
    needed = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    keep = [*needed, *map(str, (source / "lib/python3.11/encodings").glob("*.py"))]
    keep += [str(path) for path in (source / "lib" / "x86_64-linux-gnu").iterdir()] + [str(source / "bin" / "python3.11")]
    for path in {Path(each) for each in keep}:
        target = small / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
    return small


def hardlinked(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)
    return target


def refused(state: Path, wanted: store.WantedLoopX, code: str) -> str:
    """The one line; and nothing is left but the lock."""
    with pytest.raises(StageError) as caught:
        store.stage(state, wanted, lambda _: None)
    assert caught.value.code == code, caught.value
    assert "\n" not in str(caught.value)
    assert {path.name for path in (state / "staged").glob("*")} <= {"lock"}
    return str(caught.value)
