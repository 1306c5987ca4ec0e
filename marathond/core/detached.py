"""The command line of a process that runs detached in a container: output and exit status go to files, a timer ends it by itself.

Owns the wrapper script, which needs nothing but a POSIX shell and ``sleep`` in the image.  Pure text; must not know who runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

# $1 timer in seconds (0: none), $2 output file, $3 status file, then the command.  The timer is for a daemon that is away past the
# deadline (fault c19): it ends the whole process group, which is this script's own.  The inner trap takes the timer's sleep along when
# the command ends first, so that nothing of ours is left in the command's session.  Only a sleep that came to its end is time that passed:
# one that the command killed (`pkill sleep`) is started again, and without any sleep there is no timer.
WRAPPER = """
limit=$1 out=$2 status=$3
shift 3
exec </dev/null >>"$out" 2>&1
timer=
if [ "$limit" -gt 0 ]; then
    (
        while :; do
            sleep "$limit" &
            nap=$!
            trap 'kill "$nap"; exit 0' TERM
            wait "$nap" && break
            [ $? -gt 128 ] || exit 0
        done
        echo timer >"$status"
        kill -s KILL 0
    ) &
    timer=$!
fi
"$@"
code=$?
if [ -n "$timer" ]; then kill -s TERM "$timer"; wait "$timer"; fi
echo "$code" >"$status"
exit "$code"
"""


def detached_argv(name: str, argv: Sequence[str], *, timer_s: int | None, output: str, status: str) -> tuple[str, ...]:
    """What to execute instead of ``argv``.

    :param name: how the wrapper shows in a process list.
    :param timer_s: seconds until it ends its whole process group by itself; None: never.
    :param output: file in the container that stdout and stderr are appended to.
    :param status: file that gets the exit status, or ``timer``.  Forgeable by whatever runs in the container (fault c18).
    """
    return ("sh", "-c", WRAPPER, name, str(timer_s or 0), output, status, *argv)
