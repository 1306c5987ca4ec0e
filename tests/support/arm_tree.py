"""A folder as arms mount it, and one look at it.  No test of its own."""

from __future__ import annotations

import time
from pathlib import Path

from marathond.staging.mounted import Mounted

LONG_S = 120.0


def value(source: Path, reader: Mounted | None = None) -> str:
    return wait(reader or Mounted(), source, LONG_S)


def wait(reader: Mounted, source: Path, seconds: float) -> str:
    return reader.answer(reader.ask(str(source)), time.monotonic() + seconds)


def make_tree(folder: Path) -> Path:
    root = folder / "arm"
    (root / "bin").mkdir(parents=True)
    (root / "run.sh").write_text("#!/bin/sh\necho 1\n")
    (root / "bin/tool").write_text("tool")
    (root / "bin/link").symlink_to("tool")
    return root


def edit(root: Path) -> None:
    (root / "run.sh").write_text("#!/bin/sh\necho 2\n")  # as long as before
