"""The command lines of the contract, each as real engines run it and as a program for the simulated one.

Owns the table.  Must not know which engine is tested: a real one gets the argv, the simulated one looks the argv up here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from marathond.ports.engine import ExecSpec
from tests.sim.fake_box import Box, CannotStart, ContainerRecord, Program

FOR_EVER_S = 100_000.0
NO_BINARY, NO_FOLDER, NO_USER = "/no/such/binary", "/no/such/folder", "nosuchuser"

PROGRAMS: dict[tuple[str, ...], Program] = {}


@dataclass(frozen=True, slots=True)
class Command:
    """``argv`` for any engine; what the simulated one runs for it is in :data:`PROGRAMS`."""

    argv: tuple[str, ...]

    def spec(self, **changes: object) -> ExecSpec:
        return ExecSpec(self.argv, **changes)  # type: ignore[arg-type]


def command(*argv: str) -> Callable[[Program], Command]:
    """Pairs an argv with its program."""

    def pair(program: Program) -> Command:
        PROGRAMS[argv] = program
        return Command(argv)

    return pair


def _shell(script: str) -> Callable[[Program], Command]:
    return command("sh", "-c", script)


def resolve(container: ContainerRecord, spec: ExecSpec) -> Program:
    """The simulated runtime's look for a command line."""
    if spec.user == NO_USER:
        raise CannotStart("user", f"unable to find user {NO_USER}: no matching entries in passwd file")
    if spec.cwd == NO_FOLDER:
        raise CannotStart("cwd", f'chdir to cwd ("{NO_FOLDER}") set in config.json failed: no such file or directory')
    program = PROGRAMS.get(tuple(spec.argv))
    if program is None:
        raise CannotStart("binary", f'exec: "{spec.argv[0]}": stat {spec.argv[0]}: no such file or directory')
    return program


def sleeps(seconds: int) -> Command:
    """Does nothing for so long."""

    async def program(box: Box) -> int:
        await box.sleep(seconds)
        return 0

    return command("sleep", str(seconds))(program)


def reads(path: str) -> Command:
    """Says what is in a file."""

    async def program(box: Box) -> int:
        await box.sleep(0.001)
        try:
            box.say(box.files[path].decode() if path in box.files else box.host_path(path).read_text())
        except FileNotFoundError:
            return 1
        return 0

    return command("cat", path)(program)


def writes(path: str, word: str) -> Command:
    """Puts a word into a file of a mount."""

    async def program(box: Box) -> int:
        await box.sleep(0.001)
        try:
            box.write_path(path).write_text(word)
        except (PermissionError, FileNotFoundError):
            return 2
        return 0

    return _shell(f"printf %s {word} > {path}")(program)


def exits(status: int) -> Command:
    async def program(box: Box) -> int:
        await box.sleep(0.001)
        return status

    return _shell(f"exit {status}")(program)


@command("true")
async def TRUE(box: Box) -> int:
    """Ends well."""
    await box.sleep(0.001)
    return 0


@command("pwd")
async def PWD(box: Box) -> int:
    """Says where it runs."""
    await box.sleep(0.001)
    box.say(f"{box.spec.cwd or box.container.spec.workdir or '/'}\n")
    return 0


@command("env")
async def ENV(box: Box) -> int:
    """Says its variables."""
    await box.sleep(0.001)
    box.say("".join(f"{name}={value}\n" for name, value in {**box.container.spec.env, **box.spec.env}.items()))
    return 0


@_shell('echo "$A $(pwd) $(id -u)" >> /tmp/out; exit 7')
async def TELLS_WHO_IT_IS(box: Box) -> int:
    """Appends its variable A, its folder and its user to /tmp/out and exits 7."""
    await box.sleep(0.001)
    line = f"{box.spec.env['A']} {box.spec.cwd or box.container.spec.workdir or '/'} {box.spec.user or 0}\n"
    box.files["/tmp/out"] = box.files.get("/tmp/out", b"") + line.encode()
    return 7


@_shell("head -c 3000000 /dev/zero | tr '\\0' x; echo error >&2; touch /tmp/done; exit 3")
async def SAYS_MUCH(box: Box) -> int:
    """Three megabytes, then it leaves /tmp/done and exits 3."""
    await box.sleep(0.001)
    box.say("x" * 3_000_000 + "error\n")
    box.files["/tmp/done"] = b""
    return 3


@_shell("echo out; echo err >&2")
async def SAYS_ON_BOTH(box: Box) -> int:
    """A word on stdout, a word on stderr."""
    await box.sleep(0.001)
    box.say("out\nerr\n")
    return 0


@_shell("kill -9 $$")
async def KILLS_ITSELF(box: Box) -> int:
    """By SIGKILL."""
    await box.sleep(0.001)
    box.kill(box.pid)
    await box.sleep(FOR_EVER_S)
    return 0


@_shell("tail /dev/zero; exit $?")
async def EATS_MEMORY(box: Box) -> int:
    """Its child is killed by the kernel; exits 137."""
    await box.sleep(0.1)
    box.oom()
    return 137


@_shell("setsid sleep 1008 & exec sleep 1009")
async def LEAVES_ONE_BEHIND(box: Box) -> int:
    """Starts ``sleep 1008`` in a session of its own and becomes ``sleep 1009``."""
    await box.sleep(0.001)
    box.spawn(_naps, detached=True, argv=("sleep", "1008"))
    box.becomes("sleep", "1009")
    await box.sleep(1009)
    return 0


@_shell("sleep 1010 & sleep 1011")
async def HAS_A_CHILD(box: Box) -> int:
    """Two children in its own session."""
    await box.sleep(0.001)
    box.spawn(_naps, detached=False, argv=("sleep", "1010"))
    box.spawn(_naps, detached=False, argv=("sleep", "1011"))
    await box.sleep(FOR_EVER_S)
    return 0


async def _naps(box: Box) -> int:
    await box.sleep(FOR_EVER_S)
    return 0


def ticks(path: str) -> Command:
    """Appends a letter to a file of a mount, twenty times a second."""

    async def program(box: Box) -> int:
        while True:
            with box.write_path(path).open("a") as file:
                file.write("x")
            await box.sleep(0.05)

    return _shell(f"while :; do printf x >> {path}; sleep 0.05; done")(program)
