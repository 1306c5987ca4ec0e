"""The command ``marathonctl``: arguments in, exit codes out.

Owns the grammar and the last line of defence: every error is one line (with ``--json`` one object in a line), never a traceback unless
``--debug``.  ``status`` is dispatched before typer is imported; everything heavy is imported inside the command that needs it.  Exit codes:
0 healthy, 1 degraded or failed, 2 usage, 3 daemon down, 4 cannot see, 75 busy.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

from marathond.cli import status
from marathond.cli.refusals import Failure, refused, say_failure, wants_json
from marathond.core.errors import LedgerRefused, MarathonError
from marathond.service.exits import Exit

_BROKEN_PIPE = 141
"""What a shell reports for a program that wrote into a closed pipe."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main() -> None:
    """Entry point."""
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    """Carry out one command line; returns its exit code."""
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence()
        return _BROKEN_PIPE
    except OSError as error:
        # The shell has opened the file behind stdout, so that a full disk is first met here.  A file of our own has its name in the error.
        if error.errno not in _FULL or error.filename is not None or "--debug" in argv:
            raise
        _silence()
        words = f"what is printed cannot be written: {(error.strerror or str(error)).lower()}"
        if wants_json(argv):
            say_failure(Failure(words, Exit.FAILED))
        else:
            print(f"marathonctl: {words}", file=sys.stderr)
        return Exit.FAILED
    except MarathonError as error:
        if "--debug" in argv:
            raise
        return refused(error, as_json=wants_json(argv))
    except KeyboardInterrupt:
        return 130


def _silence() -> None:
    """Python would complain again when it flushes stdout at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(argv: Sequence[str]) -> int:
    if "_MARATHONCTL_COMPLETE" in os.environ:  # a shell asks, at a tab
        from marathond.cli.tab import answer

        return answer(argv)
    if (options := status.parse(argv)) is not None:
        try:
            return status.run(options)
        except LedgerRefused as error:
            if options.debug:
                raise
            return refused(error, as_json=options.as_json, exit_code=status.exit_code_of_refusal(error))
    from marathond.cli.grammar import invoke

    return invoke(argv)


if __name__ == "__main__":
    main()
