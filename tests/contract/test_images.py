"""Images on a real engine: both builders, their proxies, their names, and what an image brings along (faults a11, b13, b14)."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from contract.conftest import Bench

from marathond.agents.projectfiles import project_files
from marathond.core.errors import BuilderMissing, EngineError, EngineTimeout, NotFound
from marathond.demo.host import SetupError
from marathond.engine import buildkit
from marathond.ports.engine import ContainerSpec, ImageInfo
from tests.conftest import IN_CI
from tests.support.buildx_env import buildx

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

PLANTED = "http://planted.invalid:9"
OURS = "http://user:pass-word@127.0.0.1:9"


def unable(reason: str) -> None:
    """What this machine lacks: a failure in CI, a skip with the reason elsewhere."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person whose docker sends everything through a proxy, and whose shell does, too."""
    settings = {"proxies": {"default": {"httpProxy": PLANTED, "httpsProxy": PLANTED, "noProxy": "planted.invalid", "allProxy": PLANTED}}}
    folder = tmp_path / "home" / ".docker"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, PLANTED)
    return folder.parent


@pytest.fixture
def builder(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """``classic``; ``docker``: the client itself, as on Debian 12; ``buildx``: the plugin, in the person's own folder."""
    monkeypatch.setattr(buildkit, "PROBE_S", 240.0)  # a machine that is slow to load the program is not without it
    if request.param == "buildx":
        try:
            program = buildx()
        except SetupError as error:
            unable(str(error))
        (home / ".docker/cli-plugins").mkdir()
        (home / ".docker/cli-plugins/docker-buildx").symlink_to(program)
    return str(request.param)


async def ref_of(bench: Bench) -> str:
    base = await bench.engine.inspect_image(bench.image_id)
    assert base is not None
    return base.tags[0]


async def build(bench: Bench, context: Path, *, kit: bool = True, **changes: object) -> tuple[ImageInfo, str]:
    """The image and the build's output.  A host without any BuildKit is not able to run the test."""
    output = bytearray()

    async def log(data: bytes) -> None:
        output.extend(data)

    request: dict[str, object] = {"tag": None, "labels": bench.labels, "build_args": {}, "network": "none", "timeout_s": 240.0, "log": log}
    try:
        image = await bench.engine.build_image(context, **{**request, **changes}, buildkit=kit)  # type: ignore[arg-type]
    except BuilderMissing as error:
        unable(error.detail)
    return image, output.decode()


@pytest.fixture
async def removed(bench: Bench) -> AsyncIterator[list[str]]:
    """Ids or names of images that the test made."""
    made: list[str] = []
    yield made
    await bench.clean()
    for ref in made:
        await bench.engine.remove_image(ref)


@pytest.mark.parametrize("builder", ["classic", "docker", "buildx"], indirect=True)
async def test_b13_a_build_has_the_proxies_of_its_arguments_and_neither_image_nor_container_any(
    bench: Bench, builder: str, removed: list[str], tmp_path: Path
) -> None:
    kit, context = builder != "classic", tmp_path / "context"
    context.mkdir()
    mount = "--mount=type=tmpfs,target=/t " if kit else ""
    (context / "Dockerfile").write_text(f"FROM {await ref_of(bench)}\nARG WORD\nRUN {mount}env >/build-env # {bench.name()}\n")
    args = {"HTTP_PROXY": OURS, "no_proxy": "ours.invalid", "WORD": "said"}
    image, output = await build(bench, context, kit=kit, build_args=args)
    removed.append(image.id)
    assert image.tags == () and image.labels == bench.labels and image.size_bytes > 0
    if builder == "buildx":
        assert f"{tmp_path}/home/.docker/cli-plugins/docker-buildx" in output.splitlines()[0]
    container = await bench.container(image_id=image.id)
    seen = await bench.shell(container, "cat /build-env")
    assert f"HTTP_PROXY={OURS}\n" in seen and "no_proxy=ours.invalid\n" in seen and "WORD=said\n" in seen
    assert "planted" not in seen
    history = await bench.engine._client.request("image.history", "GET", f"images/{image.id}/history")
    assert "WORD=said" in json.dumps(history)  # Docker's own way with a declared argument; a proxy is never declared
    for text in (json.dumps(history), str(image.env), await bench.shell(container, "env")):
        assert "pass-word" not in text and "planted" not in text and "proxy" not in text.lower()
    shown = await bench.engine.inspect_container(container)
    assert shown is not None and not any("proxy" in item.lower() for item in shown.env)


@pytest.mark.parametrize("builder", ["docker", "buildx"], indirect=True)
async def test_a_buildkit_build_that_fails_says_why_in_its_last_lines(bench: Bench, builder: str, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {await ref_of(bench)}\nRUN --mount=type=tmpfs,target=/t echo the reason; exit 9\n")
    with pytest.raises(EngineError, match=r"(?s)the reason.*exit code: 9"):
        await build(bench, tmp_path)


def running(token: str) -> bool:
    """Whether a process of a build still has the token in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue  # it ended while we looked
        if token.encode() in text and b"sleep" in text:
            return True
    return False


@pytest.mark.parametrize("builder", ["classic", "docker", "buildx"], indirect=True)
async def test_a_build_ends_with_its_deadline_and_with_whoever_asked_for_it(bench: Bench, builder: str, tmp_path: Path) -> None:
    kit, token = builder != "classic", f"mdtest-{secrets.token_hex(6)}"
    mount = "--mount=type=tmpfs,target=/t " if kit else ""
    (tmp_path / "Dockerfile").write_text(f"FROM {await ref_of(bench)}\nRUN {mount}: {token}; echo started; sleep 600\n")
    with pytest.raises(EngineTimeout):
        await build(bench, tmp_path, kit=kit, timeout_s=0.5)
    with anyio.CancelScope() as scope:

        async def leave(data: bytes) -> None:
            if any(line.endswith(b"started") and b"echo" not in line for line in data.splitlines()):
                scope.cancel()

        await build(bench, tmp_path, kit=kit, log=leave)
    assert scope.cancelled_caught
    with anyio.fail_after(120):
        while True:
            if not running(token):
                break
            await anyio.sleep(0.1)


async def test_an_image_gets_its_name_when_it_is_told_to_and_the_name_moves(bench: Bench, removed: list[str], tmp_path: Path) -> None:
    tag, made = f"mdtest-named:{secrets.token_hex(6)}", []
    for word in ("one", "two"):
        (tmp_path / "Dockerfile").write_text(f"FROM {await ref_of(bench)}\nENV WORD={word}\nLABEL at={bench.name()}\n")
        image, _ = await build(bench, tmp_path, kit=False)
        removed.append(image.id)
        made.append(image.id)
        assert image.tags == ()
        await bench.engine.tag_image(image.id, tag)
        named = await bench.engine.inspect_image(tag)
        assert named is not None and named.id == image.id
    assert made[0] != made[1]
    with pytest.raises(NotFound):
        await bench.engine.tag_image(f"sha256:{'0' * 64}", tag)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", "no docker on PATH; install docker with buildx"),
        ("echo Docker version 28.2.2, build x", "docker (Docker version 28.2.2, build x) has no buildx; install"),
        ("exit 1", "docker (does not run) has no buildx"),
    ],
)
async def test_without_a_program_for_buildkit_the_build_is_refused_with_what_to_install(
    bench: Bench, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, expected: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if said:
        (programs / "docker").write_text(f'#!/bin/sh\n[ "$1" = --version ] || exit 1\n{said}\n')
        (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(buildkit, "_PATH", ())
    monkeypatch.setattr(buildkit, "PLUGIN_FOLDERS", ())
    (tmp_path / "Dockerfile").write_text(f"FROM {await ref_of(bench)}\nCOPY --chmod=700 Dockerfile /\n")

    async def log(_: bytes) -> None:
        return None

    request = {"tag": None, "labels": {}, "build_args": {}, "network": None, "timeout_s": 60.0, "log": log, "buildkit": True}
    with pytest.raises(BuilderMissing) as caught:
        await bench.engine.build_image(tmp_path, **request)  # type: ignore[arg-type]
    assert expected in caught.value.detail and "docker-buildx" in caught.value.detail


async def test_a11_files_that_speak_to_an_agent_are_found_in_a_container_without_running_anything_in_it(
    bench: Bench, removed: list[str], tmp_path: Path
) -> None:
    (tmp_path / "Dockerfile").write_text(
        f"FROM {await ref_of(bench)}\nRUN mkdir -p /app/deep/.codex/skills/x /app/.codex && touch /app/AGENTS.md /AGENTS.override.md"
        " && ln -s /nowhere /app/.codex/config.toml && mkdir /other && touch /other/AGENTS.md /app/deep/agents.md\nWORKDIR /app/deep\n"
    )
    image, _ = await build(bench, tmp_path, kit=False)
    removed.append(image.id)
    found = ["/app/deep/.codex/skills", "/app/AGENTS.md", "/app/.codex/config.toml", "/AGENTS.override.md"]
    spec = ContainerSpec(name=bench.name("a"), image_id=image.id, labels=bench.labels, network=None)
    created = await bench.engine.create_container(spec)
    assert await project_files(bench.engine, created, image.workdir) == found  # not started yet
    await bench.engine.start_container(created)
    assert await project_files(bench.engine, created, image.workdir) == found
    await bench.engine.pause(created)
    assert await project_files(bench.engine, created, image.workdir, ["AGENTS.md"]) == ["/app/AGENTS.md"]
    await bench.engine.unpause(created)
    assert await project_files(bench.engine, created, "/") == ["/AGENTS.override.md"]
    with pytest.raises(NotFound):
        await project_files(bench.engine, "0" * 64, "/app")
