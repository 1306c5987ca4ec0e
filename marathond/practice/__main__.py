"""``python -m marathond.practice --script FILE``: the practice provider as a process.  Also behind ``marathond practice``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from marathond.core.errors import ConfigError
from marathond.practice.script import load
from marathond.practice.server import serve


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 after SIGTERM or SIGINT (or a script that is right, with ``--check``), 2 for anything the user can mend."""
    parser = argparse.ArgumentParser(prog="marathond practice", description="A scripted stand-in for a model provider's Responses API.")
    parser.add_argument("--script", type=Path, required=True, metavar="FILE", help="what to answer (TOML)")
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="0, the default, is one that is free; it is printed")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="record every request there, one file per trial")
    parser.add_argument("--check", action="store_true", help="only look whether the script is right")
    given = parser.parse_args(argv)
    if not 0 <= given.port <= 65535:
        parser.error(f"--port {given.port}: must be from 0 to 65535")
    try:
        if given.check:
            load(given.script)
        else:
            asyncio.run(serve(given.script, given.host, given.port, given.record))
    except ConfigError as err:
        sys.stderr.write(f"{err}\n")
        return 2
    except OSError as err:
        sys.stderr.write(f"practice provider: {err}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
