"""``python -m marathond.demo``: what the Makefile calls.  Standard library only until the demo campaign itself starts."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from marathond.demo.engine import with_engine
from marathond.demo.host import SetupError, say, widen_path
from marathond.demo.private_engine import PrivateEngine

CLONE = Path(__file__).resolve().parents[2]
CACHE = CLONE / ".cache"


def main(arguments: list[str] | None = None) -> int:
    """Exit status: that of the wrapped command, 1 when set-up failed, 2 for a wrong call."""
    parser = argparse.ArgumentParser(prog="python -m marathond.demo", description="Set-up for `make demo` and `make test`.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    wrap = verbs.add_parser("with-engine", help="run a command beside a Docker engine that has the base image")
    wrap.add_argument("--optional", action="store_true", help="run the command also where no engine can be had")
    wrap.add_argument("--sweep", action="store_true", help="afterwards, empty a private engine of containers and networks")
    wrap.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …")
    demo = verbs.add_parser("run", help="run the demo campaign on the engine that DOCKER_HOST names")
    demo.add_argument("--folder", type=Path, default=Path("demo"), help="where its ledger, artifacts and log lie (default: demo)")
    verbs.add_parser("clean", help="remove what set-up cached: the private engine's data and the base image's tarball")
    given = parser.parse_args(arguments)
    widen_path()
    try:
        if given.verb == "clean":
            return clean()
        if given.verb == "run":
            # The daemon's client side needs installed packages; everything before this point does not.
            from marathond.demo.run import run

            return run(given.folder, CACHE)
        command = given.command[1:] if given.command[:1] == ["--"] else given.command
        if not command:
            parser.error("with-engine: no command given after --")
        return with_engine(CLONE, CACHE, command, optional=given.optional, sweep=given.sweep)
    except SetupError as err:
        for line in err.log_tail:
            print(f"  | {line}", file=sys.stderr)
        say(str(err))
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def clean() -> int:
    """Remove the caches of this clone; refuses while its private engine runs."""
    private = PrivateEngine(CLONE, CACHE)
    private.lock()
    try:
        for folder in (Path("/var/lib/marathond-demo") / private.id, CACHE):
            if folder.exists():
                subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)
    finally:
        private.close()
    say(f"removed {CACHE}; Debian packages and images on other engines stay")
    return 0


if __name__ == "__main__":
    sys.exit(main())
