"""`marathonctl prebuild`: every image of a campaign, in parallel, once, beside a daemon or without one (faults b13, b14, b16)."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from marathond.demo.docker_http import Docker
from tests.support.prebuilds import (
    MOUNT,
    Nap,
    able_home,
    built_task,
    history_of,
    image_of,
    prebuild,
    remove_images,
    tag_of,
    until,
    write_config,
)
from tests.support.published import printed
from tests.support.rig import BASE_IMAGE, CALL_TIMEOUT_S, Rig, make_task

pytestmark = pytest.mark.docker

PLANTED = "http://planted.invalid:9"
OURS = "http://user:pass-word@127.0.0.1:9"
SEEN = "env >/build-env && readlink /proc/self/ns/net >/build-net"
READY = {"classic", "kit", "declared", "nap-1", "nap-2", "nap-3"}


@pytest.fixture
def root() -> Iterator[Path]:
    """A short folder for a state directory."""
    path = Path(tempfile.mkdtemp(prefix="mp-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@dataclass(frozen=True)
class Ran:
    """A prebuild of everything, ended; the configuration still stands."""

    docker_host: str
    config: Path
    tasks: dict[str, Path]
    code: int
    err: str
    images: dict[str, dict[str, Any]]
    parked: list[dict[str, Any]]
    at_once: int


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder, naps = tmp_path_factory.mktemp("tasks"), [Nap() for _ in range(3)]
    made = [
        built_task(folder, "classic", f"RUN {SEEN}"),
        built_task(folder, "kit", f"RUN {MOUNT}{SEEN}"),
        make_task(folder, "declared"),
        built_task(folder, "bad", "RUN echo words of the build; exit 3"),
        built_task(folder, "kit-bad", f"RUN {MOUNT}echo words of the kit; exit 4"),
        make_task(folder, "missing"),
        *(built_task(folder, f"nap-{n}", f"RUN {MOUNT if n == 1 else ''}{nap.command}") for n, nap in enumerate(naps, start=1)),
        folder / "broken",
    ]
    tasks = {task.name: task for task in made}
    tasks["broken"].mkdir()
    (tasks["broken"] / "task.toml").write_text("[agent")
    (tasks["broken"] / "task.toml").write_text("no toml at all\n")
    toml = tasks["missing"] / "task.toml"
    toml.write_text(toml.read_text().replace(BASE_IMAGE, "127.0.0.1:1/marathond-test/not-here:1"))
    home = tmp_path_factory.mktemp("home")
    (home / ".docker").mkdir()
    (home / ".docker/config.json").write_text(json.dumps({"proxies": {"default": {"httpProxy": PLANTED, "httpsProxy": PLANTED}}}))
    root = Path(tempfile.mkdtemp(prefix="mp-", dir="/tmp"))
    engine = f'build_network = "host"\nbuild_args = {{ HTTP_PROXY = "{OURS}" }}'
    config = write_config(root, docker_host, list(tasks.values()), engine=engine)
    environ = {**able_home(home), "HTTPS_PROXY": PLANTED}
    try:
        with prebuild(config, "--json", "--jobs", "3", environ=environ) as run:
            for nap in naps:
                nap.begun()
            at_once = sum(nap.running() is not None for nap in naps)
            for nap in naps:
                nap.end()
            images = run.finish()
        yield Ran(docker_host, config, tasks, run.code, run.err, images, printed("prebuild", run.out)["parked"], at_once)
    finally:
        remove_images(docker_host, [tag_of(task) for task in made if (task / "environment").is_dir()])
        shutil.rmtree(root)


def test_b16_everything_is_made_ahead_and_one_that_cannot_be_stops_none_of_the_others(ran: Ran) -> None:
    assert ran.code == 1
    assert {name for name, row in ran.images.items() if row["outcome"] == "ready"} == READY, ran.err
    hows = {name: ran.images[name]["how"] for name in READY}
    assert hows == {
        **{"classic": "built classic", "kit": "built buildkit", "declared": "existing"},
        **{"nap-1": "built buildkit", "nap-2": "built classic", "nap-3": "built classic"},
    }
    for name in READY:
        row, shown = ran.images[name], image_of(ran.docker_host, BASE_IMAGE if name == "declared" else tag_of(ran.tasks[name]))
        assert shown is not None and (shown["Id"], shown["Size"]) == (row["image_id"], row["size_bytes"])
        assert (row["log"] == "") is (name == "declared") and row["seconds"] >= 0


def test_three_builds_run_side_by_side(ran: Ran) -> None:
    assert ran.at_once == 3


def test_a_failed_build_says_why_and_where_its_log_is(ran: Ran) -> None:
    for name, words, status in (("bad", "words of the build", "3"), ("kit-bad", "words of the kit", "4")):
        row = ran.images[name]
        assert (row["outcome"], row["image_id"], row["how"]) == ("image_build_failed", "", "")
        assert row["detail"].startswith("after 1 try: ") and words in row["detail"] and row["detail"].endswith(status)
        assert words in Path(row["log"]).read_text()
        assert image_of(ran.docker_host, tag_of(ran.tasks[name])) is None
    assert Path(ran.images["kit-bad"]["log"]).read_text().startswith("# with BuildKit: line 3: RUN --mount\n")
    assert ran.images["missing"]["outcome"] == "image_missing" and "not-here" in ran.images["missing"]["detail"]


def test_a_task_that_parks_anyway_needs_no_image_and_is_told(ran: Ran) -> None:
    assert [(task["name"], task["code"]) for task in ran.parked] == [("broken", "task_broken")]
    assert "broken" not in ran.images


@pytest.mark.parametrize("name", ["classic", "kit"])
def test_b13_proxies_reach_builds_by_arguments_alone_and_no_image(ran: Ran, name: str) -> None:
    ref = tag_of(ran.tasks[name])
    shown = image_of(ran.docker_host, ref)
    assert shown is not None
    texts = [json.dumps(shown), history_of(ran.docker_host, ref)]
    assert not any("pass-word" in text or "planted" in text or "_proxy" in text.lower() for text in texts)
    output = Path(ran.images[name]["log"]).read_text()
    assert "planted" not in output and "pass-word" not in output


@pytest.mark.anyio
async def test_b14_the_daemon_takes_what_was_prebuilt_and_builds_nothing_again(ran: Ran) -> None:
    """Also what the builds saw: the proxy of the arguments, and the host's network in both kinds."""
    tests = {"test": "cp /build-env /build-net /logs/verifier/; echo 1 >/logs/verifier/reward.txt\n"}
    overrides = {"engine.build_network": "host", "engine.build_args": {"HTTP_PROXY": "http://other.invalid:9"}}
    for name in ("classic", "kit"):
        (ran.tasks[name] / "tests" / "test.sh").write_text(f"#!/bin/sh\n{tests['test']}")
    chosen = [ran.tasks["classic"], ran.tasks["kit"]]
    async with Rig(ran.docker_host, tasks=chosen, arms={"n": {"kind": "nop"}}, overrides=overrides) as rig:
        await rig.until_done()
        used = dict(
            rig.sql(
                "SELECT task.name, image_id FROM container JOIN trial USING (trial_id) JOIN cell USING (cell_id) JOIN task USING (task_id)"
            )
        )
        assert used == {name: ran.images[name]["image_id"] for name in ("classic", "kit")}, rig.story()
        assert list((rig.root / "state" / "builds").glob("*.log")) == []
        seen = {path.parts[-3]: path for path in (rig.root / "out").glob("*/*/verifier/build-env")}
        assert len(seen) == 2
        networks = set()
        for path in seen.values():
            assert f"HTTP_PROXY={OURS}\n" in path.read_text() and "planted" not in path.read_text()
            networks.add((path.parent / "build-net").read_text())
        assert len(networks) == 1  # a build without the host's network has one of its own


def test_again_everything_is_there_already_in_a_table_for_people(ran: Ran) -> None:
    with prebuild(ran.config, "--task", "kit") as run:
        run.finish()
    header, row, total = run.out.splitlines()
    assert run.code == 0 and run.err == ""
    assert header.split() == ["task", "image", "how", "time", "size", "outcome", "log"]
    assert row.split()[:3] == ["kit", ran.images["kit"]["image_id"][7:19], "existing"] and row.split()[-2:] == ["ready", "-"]
    assert total == "1 image: 1 existing"
    with prebuild(ran.config, "--task", "kti") as run:
        run.finish()
    assert (run.code, run.out) == (2, "") and "--task kti: no such task in campaign test; did you mean kit?" in run.err


def test_an_engine_that_is_away_is_one_line(root: Path, tmp_path: Path) -> None:
    config = write_config(root, f"unix://{root}/nobody.sock", [make_task(tmp_path, "t")])
    with prebuild(config) as run:
        run.finish()
    assert (run.code, run.out) == (1, "") and "no such socket (is dockerd running?)" in run.err and len(run.err.splitlines()) == 1


@pytest.mark.parametrize("mount", ["", MOUNT], ids=["classic", "kit"])
def test_f02_killed_in_mid_build_it_leaves_no_image_no_lock_and_no_build(docker_host: str, root: Path, tmp_path: Path, mount: str) -> None:
    nap, environ = Nap(), able_home(tmp_path)
    task = built_task(tmp_path, "killed", f"RUN {mount}{nap.command}")
    config = write_config(root, docker_host, [task])
    try:
        with prebuild(config, "--json", environ=environ) as first:
            nap.begun()
            first.kill()
        nap.ended()  # the engine stopped it: nobody asks for it any more
        assert image_of(docker_host, tag_of(task)) is None
        with prebuild(config, "--json", environ=environ) as second:
            nap.begun()
            nap.end()
            row = second.finish()["killed"]
        assert (second.code, row["outcome"]) == (0, "ready") and row["how"].startswith("built"), second.err
        shown = image_of(docker_host, tag_of(task))
        assert shown is not None and shown["Id"] == row["image_id"]
        assert list(Path(tempfile.gettempdir()).glob(f"marathond-build-{first.process.pid}-*")) == []
    finally:
        remove_images(docker_host, [tag_of(task)])


@pytest.mark.anyio
async def test_b14_daemon_and_prebuild_do_not_build_one_image_twice(docker_host: str, tmp_path: Path) -> None:
    nap = Nap()
    task = built_task(tmp_path, "shared", f"RUN {nap.command}")
    try:
        async with Rig(docker_host, tasks=[task], arms={"n": {"kind": "nop"}}) as rig:
            await to_thread.run_sync(nap.begun)  # the daemon builds
            environ = {"MARATHOND_ENGINE__URL": docker_host}
            with prebuild(rig.config, "--json", environ=environ) as run:
                await to_thread.run_sync(until, run.waits_for_a_lock, "prebuild waits")
                assert run.process.poll() is None
                await to_thread.run_sync(nap.end)
                row = (await to_thread.run_sync(run.finish))["shared"]
            assert (run.code, row["how"], row["outcome"]) == (0, "existing", "ready"), run.err
            assert "build" not in run.err
            await rig.until_done()
            assert rig.one("SELECT image_id FROM container") == row["image_id"]
            assert rig.sql("SELECT state FROM trial") == [("scored",)], rig.story()
    finally:
        remove_images(docker_host, [tag_of(task)])


def test_b14_a_context_that_is_edited_while_it_is_built_gives_no_image_its_name(docker_host: str, root: Path, tmp_path: Path) -> None:
    nap = Nap()
    task = built_task(tmp_path, "edited", f"RUN {nap.command}")
    before = tag_of(task)
    config = write_config(root, docker_host, [task])
    with prebuild(config, "--json") as run:
        nap.begun()
        (task / "environment" / "more").write_text("more")
        nap.end()
        row = run.finish()["edited"]
    assert run.code == 1 and row["outcome"] == "image_build_failed" and "environment/ changed while its image was built" in row["detail"]
    assert image_of(docker_host, before) is None and image_of(docker_host, tag_of(task)) is None
    label = (task / "environment" / "Dockerfile").read_text().split("marathond.test=")[1].split()[0]
    named = '/images/json?filters={"label":["marathond.test=' + label + '","marathond.context"]}'
    status, left = Docker(docker_host).call("GET", named, CALL_TIMEOUT_S)
    assert (status, left) == (200, [])
