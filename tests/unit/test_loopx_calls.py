"""What of an agent's commands is a call of LoopX: over the shapes that models write, and over texts that are made to be slow to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.agents.loopx import profile
from marathond.agents.loopx.calls import CALLS_AT_MOST, NAMELESS, PROGRAMS, calls
from marathond.agents.loopx.shell import CHARS_AT_MOST, COMMANDS_AT_MOST, Command, commands

CLI = profile.CLI
LIST, ASK = "todo list", "quota should-run"

CALLS = [
    ("its path", f"cd x && {CLI} --registry /r --format json quota should-run --goal-id g", [ASK]),
    ("its name", "loopx todo list", [LIST]),
    ("options with an equals sign", "loopx --format=json --registry /r todo list", [LIST]),
    ("variables before it", f"A=1 B='2 3' {CLI} todo list", [LIST]),
    ("a pipe", f"{CLI} quota should-run --begin-turn 2>/dev/null | tee /tmp/q.json | jq .", [ASK]),
    ("several", f"{CLI} todo list; {CLI} status\n{CLI} quota should-run || {CLI} doctor", [LIST, "status", ASK, "doctor"]),
    ("a shell's -c", f"sh -c \"{CLI} todo add --text 'x y'\"", ["todo add"]),
    ("as codex wraps it", f"/bin/bash -lc 'cd /app; {CLI} quota should-run | jq .'", [ASK]),
    ("a shell in a shell", "bash -c \"sh -c 'loopx todo list'\"", [LIST]),
    ("a here-document for a shell", f"bash <<'EOF'\n{CLI} todo list\n{CLI} status\nEOF\n{CLI} doctor", [LIST, "status", "doctor"]),
    ("an indented one", f"sh -e <<-EOF || exit 1\n\t{CLI} todo list\n\tEOF\n{CLI} status", [LIST, "status"]),
    ("one through a pipe", "cat <<EOF | sh\nloopx todo list\nEOF", [LIST]),
    ("what a here-document substitutes", "cat <<EOF\n$(loopx todo list)\nEOF", [LIST]),
    ("substitutions", 'x=$(loopx todo list | head); y=`loopx doctor`; echo "$(loopx status)"', [LIST, "doctor", "status"]),
    ("substituted processes", "diff <(loopx todo list) <(loopx status)", [LIST, "status"]),
    ("a variable", f'LX={CLI}; "$LX" todo list && ${{LX}} quota should-run', [LIST, ASK]),
    ("a variable of several words", f'LX="{CLI} --registry /r"; $LX todo list', [LIST]),
    ("an exported one", "export LX=loopx; $LX todo list", [LIST]),
    ("a default", "${LX:-loopx} todo list", [LIST]),
    ("a place that was asked for", "LX=$(command -v loopx); $LX todo list", [LIST]),
    ("an array", 'LX=(loopx --registry /r); "${LX[@]}" todo list', [LIST]),
    ("a function", 'lx() { loopx --registry /r --format json "$@"; }; lx todo list; lx quota should-run', [LIST, ASK]),
    ("a function that is never called", "lx() { loopx todo list; }", []),
    ("a loop", "for i in loopx 2; do loopx todo list; done", [LIST]),
    ("a branch", "if ! loopx quota should-run; then loopx todo list; fi", [ASK, LIST]),
    ("a case", "case $x in a) loopx todo list;; esac", [LIST]),
    ("a subshell", "(cd /app; loopx todo list)", [LIST]),
    ("a group", "{ loopx todo list; } >/dev/null 2>&1", [LIST]),
    ("wrappers", "timeout 30 env X=1 nice -n 5 loopx todo list", [LIST]),
    ("another user", "sudo -u somebody loopx status", ["status"]),
    ("arguments from a pipe", "echo a | xargs -n 1 loopx todo complete --todo-id", ["todo complete"]),
    ("eval", 'eval "loopx todo list"', [LIST]),
    ("its Python", f"{profile.PYTHON} -m loopx.entrypoint todo list", [LIST]),
    ("a line that goes on", "loopx \\\n  --registry /r \\\n  todo list", [LIST]),
    ("no sub-command", "loopx --help; loopx --version; loopx", [NAMELESS] * 3),
    ("words in an argument", 'loopx todo complete --evidence "it\'s done; loopx doctor"', ["todo complete"]),
]
MENTIONS = [
    "grep -r loopx /app",
    f"grep -c '{CLI} todo list' log.txt",
    f"ls {profile.ROOT}; ls -la {CLI}",
    f"sed -n 1,20p {CLI}",
    "which loopx; command -v loopx; type -p loopx",
    "echo 'loopx quota should-run'",
    "# loopx todo list",
    "true # loopx todo list",
    f"cat <<EOF >run.sh\n{CLI} todo list\nEOF\necho done",
    "python3 - <<'EOF'\nimport os\nos.system('loopx todo list')\nEOF",
    "/app/loopx todo list; ./loopx todo list; loopx-tool todo list",
    "pip install loopx; cd loopx; git commit -m 'loopx todo list'",
    "python3 -m loopx_tests; python3 -m",
    "cat loopx; for loopx in a b; do echo $loopx; done",
    "echo x > loopx; cat < loopx 2> loopx",
]


@pytest.mark.parametrize(("line", "expected"), [pytest.param(line, expected, id=name) for name, line, expected in CALLS])
def test_a13_calls_are_counted_in_every_shape(line: str, expected: list[str]) -> None:
    assert calls(line) == expected


@pytest.mark.parametrize("line", MENTIONS)
def test_a13_a_command_that_only_mentions_loopx_is_no_call(line: str) -> None:
    assert calls(line) == []


def test_the_programs_are_those_that_containers_have() -> None:
    assert {profile.CLI, profile.COMMAND, "loopx"} < PROGRAMS


def test_words_come_without_their_quotes() -> None:
    assert commands("""a 'b c' "d \\" e" f\\ g $'h\\'i' >x 2>&1 <y""") == [Command(("a", "b c", 'd " e', "f g", "h\\'i"))]
    assert commands("cat <<A <<B\n1\nA\n2\nB\nx") == [Command(("cat",), "1\n2"), Command(("x",))]
    assert commands('f() { a "$1" "$2"; }; f x y; f') == [Command(("a", "x", "y")), Command(("a", "$1", "$2"))]


@pytest.mark.parametrize(
    "text",
    [
        *(each * 20_000 for each in ("(", "$(", "<(", "`", "'", '"', "{ ", "${", "<<", "\\", "a;", "$a")),
        "<<a " * 10_000,
        "a=x;" + "b=$a$a;a=$b$b;" * 2_000,
        f"f(){{ {'x $@ ' * 30}; }}; " + "f a b c;" * 3_000,
        "f(){ f; };f;" * 3_000,
        "cat <<" + "A\n" * 20_000,
    ],
    ids=lambda text: str(text[:12]),
)
def test_no_text_is_slow_or_deep(text: str) -> None:
    """It ends, and within the bounds; a reader that took it up again and again would not within the suite's patience."""
    assert calls(text + "\nloopx todo list") in ([], [LIST])
    assert len(commands(text)) <= COMMANDS_AT_MOST


def test_what_is_beyond_the_bounds_is_left_out() -> None:
    assert len(calls("loopx a;" * 30_000)) <= CALLS_AT_MOST
    assert calls("x" * CHARS_AT_MOST + "; loopx todo list") == []


@given(st.text(alphabet="loopx todo;|&()<>$`'\"\\{}\n#=EOF -c sh", max_size=200))
def test_whatever_it_is_it_gives_commands_or_none(text: str) -> None:
    for command in commands(text):
        assert command.words and isinstance(command.fed, str)
    assert len(calls(text)) <= len(text)
