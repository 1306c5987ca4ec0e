"""The command line of a process that runs detached in a container: output and exit status go to files, a timer ends it by itself.

Owns the wrapper script, which needs nothing but a POSIX shell and ``sleep`` in the image.  Pure text; must not know who runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

# $1 timer in seconds (0: none), $2 whether the command gives sessions of their own to what it starts, $3 output file, $4 status file, then
# the command.  The timer is for a daemon that is away past the deadline (fault c19): it ends the whole process group, which is this
# script's own, and those sessions before it (fault b07), found as core/death.py does: they are the children's of our session's processes,
# which are stopped first, this script too, so that nothing more is started or written.
# The inner trap takes the timer's sleep along when the command ends first, so that nothing of ours is left in the command's session.
# Only a sleep that came to its end is time that passed: one that the command killed (`pkill sleep`) is started again, and without any
# sleep there is no timer.  A timer that is ended before it has its trap makes the shell say so, which is no word of the command's.
# Fields of /proc/PID/stat: pid (name) state parent group session; a name may hold blanks and parentheses.
WRAPPER = """
limit=$1 tools=$2 out=$3 status=$4
shift 4
exec </dev/null >>"$out" 2>&1
each() {
    for stat in /proc/[0-9]*/stat; do
        read -r line <"$stat" || continue
        set -- "${line%% *}" ${line##*) }
        "$look" "$1" "$3" "$5"
    done 2>/dev/null
}
stop() { [ "$3" = "$$" ] && mine="$mine$1 " && [ "$1" != "$self" ] && kill -s STOP "$1"; }
started() { case $mine in *" $2 "*) [ "$3" = "$$" ] || doomed="$doomed$3 " ;; esac }
end() { case $doomed in *" $3 "*) [ "$1" = "$$" ] || [ "$1" = "$self" ] || kill -s KILL "$1" ;; esac }
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
        if [ "$tools" = 1 ]; then
            read -r self rest </proc/self/stat
            mine=" " doomed=" $$ "
            for look in stop started end end; do each; done
        fi
        kill -s KILL 0
    ) &
    timer=$!
fi
"$@"
code=$?
if [ -n "$timer" ]; then { kill -s TERM "$timer"; wait "$timer"; } 2>/dev/null; fi
echo "$code" >"$status"
exit "$code"
"""


def detached_argv(
    name: str, argv: Sequence[str], *, timer_s: int | None, output: str, status: str, tool_sessions: bool = False
) -> tuple[str, ...]:
    """What to execute instead of ``argv``.

    :param name: how the wrapper shows in a process list.
    :param timer_s: seconds until it ends its whole process group by itself; None: never.
    :param tool_sessions: whether the command gives each thing that it starts a session of its own, which ends with it.
    :param output: file in the container that stdout and stderr are appended to.
    :param status: file that gets the exit status, or ``timer``.  Forgeable by whatever runs in the container (fault c18).
    """
    return ("sh", "-c", WRAPPER, name, str(timer_s or 0), str(int(tool_sessions)), output, status, *argv)
