"""Work that a process of its own does: bytes read, things opened, memory at its highest.  No test of its own.

Never seconds: those are the machine's.  The child does nothing but import and run what it is given.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

MB = 1 << 20
_CHILD = """
import json, sys

def field(name, path):
    return next(int(line.split()[1]) for line in open(path) if line.startswith(name))

{imports}
opened = 0

def count(event, args):
    global opened
    opened += event in ("open", "os.scandir", "os.remove", "os.rmdir", "os.rename")

sys.addaudithook(count)
open("/proc/self/clear_refs", "w").write("5")
before, began = field("rchar", "/proc/self/io"), field("VmRSS", "/proc/self/status")
opened = 0
{script}
acts = opened
after, high = field("rchar", "/proc/self/io"), field("VmHWM", "/proc/self/status")
print(json.dumps({{"read": after - before, "rss": (high - began) * 1024, "acts": acts, "told": told}}))
"""


@dataclass(frozen=True)
class Work:
    """``read_bytes``: asked of the system; ``rss_bytes``: growth at its highest; ``acts``: files and folders opened, removed or renamed;
    ``told``: what the script left in ``told``."""

    read_bytes: int
    rss_bytes: int
    acts: int
    told: Any


def work(imports: str, script: str) -> Work:
    """Run ``script`` (it sets ``told``, which must fit into JSON) after ``imports`` in a fresh Python."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD.format(imports=imports, script=script)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    return Work(said["read"], said["rss"], said["acts"], said["told"])
