"""``python -m marathond.gateway FOLDER``: the gateway by itself, as the unit and the tests start it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import structlog

from marathond.core.errors import ArtifactError, ConfigError, Refused
from marathond.gateway.serve import serve

EXIT_REFUSED = 78


def main(argv: list[str]) -> int:
    """0 after an orderly end; 2 wrong usage; 78 refused, starting again would not help (settings, another instance); 1 otherwise."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m marathond.gateway FOLDER\n")
        return 2
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        asyncio.run(serve(Path(argv[0])))
    except (Refused, ConfigError) as err:
        sys.stderr.write(f"{err}\n")
        return EXIT_REFUSED
    except ArtifactError as err:
        sys.stderr.write(f"{err}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
