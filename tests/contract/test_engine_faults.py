"""What the Docker adapter does when Docker, the socket or the data is bad; real engines, behind a relay where one must be cut."""

from __future__ import annotations

import gc
import os
import socket
import sys
import tarfile
import warnings
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from support.execs import start_exec
from support.outcome import wait_for
from support.relay import Relay
from support.rig import CALL_TIMEOUT_S

from marathond.core.errors import ConfigError, EngineError, EngineTimeout, EngineUnreachable, NotFound
from marathond.engine import execs
from marathond.engine.docker import DockerEngine
from marathond.engine.proof import engine_sees_files
from marathond.ports.engine import ExecInfo, ExecSpec

pytestmark = [pytest.mark.anyio]
docker = pytest.mark.docker


@pytest.fixture
def upstream(docker_host: str) -> Path:
    if not docker_host.startswith("unix://"):
        pytest.skip("the relay needs the engine's unix socket")
    return Path(docker_host.removeprefix("unix://"))


# nobody there


@pytest.mark.parametrize("url", ["ssh://host", "https://host:2376", "unix://relative", "/var/run/docker.sock", "unix://"])
def test_another_kind_of_url_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(ConfigError, match=r"engine url .*must be unix:///"):
        DockerEngine("x", url)


async def test_no_socket_is_unreachable_with_a_hint(short_tmp: Path) -> None:
    engine = DockerEngine("x", f"unix://{short_tmp}/none")
    with pytest.raises(EngineUnreachable, match="no such socket"):
        await engine.info()
    with pytest.raises(EngineUnreachable):
        await engine.create_network("x", {}, "198.19.0.0/28")
    await engine.aclose()


async def test_a_socket_nobody_listens_at_is_unreachable(short_tmp: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{short_tmp}/s")
    engine = DockerEngine("x", f"unix://{short_tmp}/s")
    with pytest.raises(EngineUnreachable, match="connection refused"):
        await engine.info()
    await engine.aclose()


async def test_something_that_is_not_docker_is_named(short_tmp: Path) -> None:
    for answer in (b"<html>", b"[1", b'{"no": "version"}'):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
        for status in (head, head.replace(b"200 OK", b"500 Oh")):
            await _not_docker(short_tmp / "s", status + answer)


async def _not_docker(path: Path, answer: bytes) -> None:
    async def serve(client: SocketStream) -> None:
        async with client:
            await client.receive()
            await client.send(answer)

    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        engine = DockerEngine("x", f"unix://{path}")
        with pytest.raises(EngineError, match="does not speak like Docker"):
            await engine.info()
        await engine.aclose()
        group.cancel_scope.cancel()


# the engine goes away and comes back


@docker
async def test_b11_waiting_for_an_exec_and_events_survive_an_outage(bench, upstream: Path, short_tmp: Path) -> None:
    container = await bench.container()
    async with Relay(short_tmp / "s", upstream) as relay:
        engine = DockerEngine("x", relay.url, call_timeout_s=CALL_TIMEOUT_S)
        events = engine.events()
        assert (await anext(events)).action == "resync"
        exec_id = await start_exec(engine, container, ExecSpec(["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 5"]))
        ended: list[ExecInfo | None] = []

        async def wait() -> None:
            ended.append(await engine.wait_exec(exec_id))

        with anyio.fail_after(240):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await relay.cut()
                with pytest.raises(EngineUnreachable):
                    await engine.info()
                await bench.shell(container, "touch /tmp/go")  # it ends while nobody can tell us
                await relay.listen()
            while (await anext(events)).action != "resync":
                pass
        assert ended[0] is not None
        assert ended[0].exit_code == 5
        await events.aclose()
        await engine.aclose()


@docker
async def test_b10_an_end_is_waited_for_over_the_engine_s_own_errors_and_not_without_end(
    bench, upstream: Path, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = await bench.container()
    async with Relay(short_tmp / "s", upstream) as relay:
        engine = DockerEngine("x", relay.url, call_timeout_s=CALL_TIMEOUT_S)
        exec_id = await start_exec(engine, container, ExecSpec(["sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 5"]))
        ended: list[ExecInfo | None] = []

        async def wait() -> None:
            ended.append(await engine.wait_exec(exec_id))

        with anyio.fail_after(240):
            async with anyio.create_task_group() as group:
                relay.fails_at = (b"/exec/",)
                group.start_soon(wait)
                await wait_for(lambda: relay.failed >= 4)
                await bench.shell(container, "touch /tmp/go")
                relay.fails_at = ()
            assert ended[0] is not None and ended[0].exit_code == 5
            relay.fails_at = (b"/exec/",)
            monkeypatch.setattr(execs, "OWN_ERRORS_S", 0.3)
            with pytest.raises(EngineError, match="containerd: connection refused"):
                await engine.wait_exec(exec_id)
        await engine.aclose()


@docker
async def test_a_tcp_engine_answers_too(bench, upstream: Path) -> None:
    async def serve(client: SocketStream) -> None:
        async with client, await anyio.connect_unix(upstream) as server, anyio.create_task_group() as group:
            group.start_soon(_pump, client, server)
            await _pump(server, client)
            group.cancel_scope.cancel()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        engine = DockerEngine("x", f"tcp://127.0.0.1:{listener.extra(SocketAttribute.local_port)}")
        container = await bench.container()
        done = await engine.run_exec(container, ExecSpec(["echo", "hi"]), timeout_s=240)
        assert done.output == "hi\n"
        await engine.aclose()
        group.cancel_scope.cancel()


async def _pump(source, target) -> None:
    try:
        async for data in source:
            await target.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # a relay passes an end on by ending


# resources


@docker
async def test_more_than_a_hundred_attached_streams_never_block_a_control_call(bench) -> None:
    container = await bench.container()
    async with anyio.create_task_group() as group:
        for _ in range(110):
            group.start_soon(_hold, bench, container)
        await bench.shell(container, "while [ $(grep -l '^sleep$' /proc/[0-9]*/comm | wc -l) -lt 111 ]; do sleep 0.2; done")
        with anyio.fail_after(240):
            assert await bench.engine.inspect_container(container) is not None
        group.cancel_scope.cancel()


async def _hold(bench, container: str) -> None:
    await bench.engine.run_exec(container, ExecSpec(["sleep", "1006"]), timeout_s=480)


@docker
async def test_nothing_is_left_unclosed(bench) -> None:
    """Also after a cancelled stream and an abandoned iteration of events."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # what earlier tests left for it is not this engine's
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine = DockerEngine("x", bench.engine.url)
        container = await bench.container()
        events = engine.events()
        await anext(events)
        for command in (["true"], ["sleep", "1007"]):
            with anyio.move_on_after(0.5):
                await engine.run_exec(container, ExecSpec(command), timeout_s=60)
        await engine.aclose()
        with pytest.raises(StopAsyncIteration):
            while True:
                await anext(events)
        with pytest.raises(RuntimeError, match="closed"):
            await engine.info()
        del engine, events
        gc.collect()
    assert [str(item.message) for item in caught if issubclass(item.category, ResourceWarning)] == []


# proofs and builds


@docker
async def test_the_nonce_arrives_and_nothing_is_left(bench, tmp_path: Path) -> None:
    assert await engine_sees_files(bench.engine, bench.image_id, tmp_path, bench.labels) == []
    assert await bench.engine.list_containers(bench.labels) == []
    assert [path async for path in anyio.Path(tmp_path).iterdir()] == []


ELSEWHERE = """
import sys, pathlib, anyio
from marathond.core.errors import EngineError
from marathond.engine import execs
from marathond.engine.docker import DockerEngine
from marathond.engine.proof import engine_sees_files

async def main(url, image, state, label, container):
    engine = DockerEngine("far", url)
    for problem in await engine_sees_files(engine, image, pathlib.Path(state), {"marathond.test": label}):
        print(problem.partition(":")[0])
    try:
        print(len(await engine.processes(container)), "processes")
    except EngineError as exc:
        print(exc.detail)
    await engine.aclose()

anyio.run(main, *sys.argv[1:])
"""


@docker
@pytest.mark.skipif(os.geteuid() != 0, reason="unshare needs root")
@pytest.mark.parametrize(
    ("unshare", "expected"),
    [
        (["--pid", "--fork", "--mount-proc"], ["processes", "another machine or pid namespace"]),
        (["--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"'], ["mounts", "2 processes"]),
    ],
    ids=["pids", "mounts"],
)
async def test_an_engine_elsewhere_is_named_and_its_processes_are_not_taken_for_dead(
    bench, tmp_path: Path, unshare: list[str], expected: list[str]
) -> None:
    """We live in another namespace than the engine, which to us is what an engine on another machine is to everyone."""
    container = await bench.container()
    await bench.running(container, "sleep 86400")
    prefix = ["unshare", *unshare, *([str(tmp_path)] if "sh" in unshare else [])]
    arguments = [bench.engine.url, bench.image_id, str(tmp_path), bench.labels["marathond.test"], container]
    done = await anyio.run_process([*prefix, sys.executable, "-c", ELSEWHERE, *arguments])
    first, second = done.stdout.decode().splitlines()
    assert first == expected[0]
    assert expected[1] in second  # two: the idle shell and its sleep


@docker
async def test_a_build_takes_args_labels_and_the_ignore_file_and_clears_the_entrypoint(bench, tmp_path: Path) -> None:
    ref = (await bench.engine.inspect_image(bench.image_id)).tags[0]
    (tmp_path / "Dockerfile").write_text(
        f'FROM {ref}\nARG WORD\nENTRYPOINT ["/bin/false"]\nHEALTHCHECK CMD false\nWORKDIR /here\nENV E=1\n'
        "COPY . /ctx\nRUN echo word $WORD\n"
    )
    (tmp_path / ".dockerignore").write_text("# no secrets\n*.key\nbig/**\n!big/keep\n")
    for name in ("a.key", "b.txt", "big/drop", "big/keep"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    output = bytearray()

    async def log(data: bytes) -> None:
        output.extend(data)

    tag = f"mdtest:{bench.labels['marathond.test']}"
    word = f"w-{bench.labels['marathond.test']}"  # new at each run: a layer from the engine's cache would print nothing
    request = {"tag": tag, "labels": bench.labels, "build_args": {"WORD": word}, "network": "none", "timeout_s": 480.0, "log": log}
    image = await bench.engine.build_image(tmp_path, **request)
    try:
        assert f"word {word}".encode() in output
        assert (image.tags, image.workdir, image.labels) == ((tag,), "/here", bench.labels)
        assert "E=1" in image.env
        container = await bench.container(image_id=image.id)
        assert await bench.shell(container, "cd /ctx; find . -type f | sort") == "./.dockerignore\n./Dockerfile\n./b.txt\n./big/keep\n"
        assert (await bench.engine.build_image(tmp_path, **request)).id == image.id  # equal contents, equal image
        await bench.clean()
    finally:
        await bench.engine._client.request("image.remove", "DELETE", f"images/{image.id}", params={"force": "1"})


@docker
async def test_a_failed_build_brings_its_last_lines(bench, tmp_path: Path) -> None:
    ref = (await bench.engine.inspect_image(bench.image_id)).tags[0]
    (tmp_path / "Dockerfile").write_text(f"FROM {ref}\nRUN echo the reason; exit 9\n")

    async def log(_: bytes) -> None:
        return None

    request = {"tag": "mdtest:never", "labels": bench.labels, "build_args": {}, "network": "none", "timeout_s": 480.0, "log": log}
    with pytest.raises(EngineError, match=r"(?s)the reason.*code: 9"):
        await bench.engine.build_image(tmp_path, **request)
    (tmp_path / "Dockerfile").unlink()
    with pytest.raises(EngineError, match="no Dockerfile"):
        await bench.engine.build_image(tmp_path, **request)


@docker
async def test_data_that_cannot_be_read_is_blamed_on_the_data(bench, tmp_path: Path) -> None:
    container = await bench.container()
    with socket.socket(socket.AF_UNIX) as special:
        special.bind(str(tmp_path / "s"))
        with pytest.raises(EngineError, match="neither a file"):
            await bench.engine.put_tree(container, tmp_path, "/tests")
    with pytest.raises(EngineError, match="No such file"):
        await bench.engine.put_tree(container, tmp_path / "none", "/tests")
    with pytest.raises(EngineError, match="absolute"):
        await bench.engine.put_tree(container, tmp_path, "tests")


@docker
async def test_an_image_no_registry_has_is_an_error(bench) -> None:
    with pytest.raises(EngineError) as caught:
        await bench.engine.pull_image("localhost:1/no/such:image", timeout_s=60)
    assert not isinstance(caught.value, EngineTimeout | NotFound)  # nobody answered, so nobody said no


def test_tar_streams_are_what_tarfile_reads(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ("n" * 200)).write_bytes(b"x" * 513)

    async def collect() -> bytes:
        from marathond.engine.trees import read_tree_tar

        return b"".join([part async for part in read_tree_tar(tmp_path, prefix="p/q")()])

    path = tmp_path.parent / "out.tar"
    path.write_bytes(anyio.run(collect))
    with tarfile.open(path) as archive:
        assert [(item.name, item.size, item.uid) for item in archive] == [("p/q", 0, 0), ("p/q/a", 0, 0), ("p/q/a/" + "n" * 200, 513, 0)]
