"""The real codex binary for tests, wherever they run: ``MARATHOND_CODEX``, or the npm package below ``.cache/codex``.

The package holds static binaries for linux-x64 and needs no Node at run time; npm only fetches it and checks its integrity.
"""

from __future__ import annotations

import fcntl
import functools
import os
from pathlib import Path

from marathond.demo.host import SetupError, need_tools, run_logged, say, tail, widen_path

VERSION = "0.171.0"
PACKAGE = f"@openai/codex@{VERSION}-linux-x64"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "codex"
INSTALL_S = 600.0
TRIES = 2


def _binary(folder: Path) -> Path | None:
    return next((p.absolute() for p in (folder / "bin" / "codex", folder) if p.is_file() and os.access(p, os.X_OK)), None)


@functools.cache
def codex_binary() -> Path:
    """Path of the executable, with its siblings beside it.  Raises SetupError with one clear line."""
    if given := os.environ.get("MARATHOND_CODEX"):
        found = _binary(Path(given))
        if found is None:
            raise SetupError(f"MARATHOND_CODEX={given}: neither the binary nor a folder with bin/codex")
        return found
    folder = CACHE / VERSION
    vendor = folder / "node_modules" / "@openai" / "codex" / "vendor" / "x86_64-unknown-linux-musl"
    widen_path()
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / ".whole").exists() and (found := _binary(vendor)) is not None:
            return found
        log = CACHE / "setup.log"
        need_tools({"npm": "npm"}, log)
        say(f"codex: fetching {PACKAGE} (about 150 MB, once)")
        argv = ["npm", "install", "--prefix", str(folder), "--no-save", "--ignore-scripts", "--force", PACKAGE]
        for _ in range(TRIES):
            status = run_logged(argv, log, INSTALL_S)
            if status == 0 and (found := _binary(vendor)) is not None:
                (folder / ".whole").touch()
                return found
        raise SetupError(f"npm could not install {PACKAGE} (exit {status}); whole output: {log}", tail(log))
