"""Reading Harbor task directories: what runs, what is refused by name, what is broken, and that nothing ever raises."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marathond.core.model import Healthcheck, Task, Unrunnable
from marathond.core.names import NetworkPolicy
from marathond.tasks.harbor import read_task, strip_canary
from marathond.tasks.support import check_host

MakeTask = Callable[..., Path]
IMAGE = '[environment]\ndocker_image = "debian:12"\n'


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    def make(toml: str | bytes = IMAGE, name: str = "sum", **files: str | bytes | None) -> Path:
        contents: dict[str, str | bytes | None] = {
            "task.toml": toml,
            "instruction.md": "Add the numbers.\n",
            "tests/test.sh": "#!/bin/sh\nexit 0\n",
            **{key.replace("__", "/").replace("_DOT_", "."): value for key, value in files.items()},
        }
        root = tmp_path / name
        for relative, content in contents.items():
            if content is not None:
                where = root / relative
                where.parent.mkdir(parents=True, exist_ok=True)
                where.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return make


def task(path: Path, **environ: str) -> Task:
    outcome = read_task(path, environ)
    assert isinstance(outcome, Task), outcome
    return outcome


def refused(path: Path, code: str, *words: str) -> str:
    outcome = read_task(path)
    assert isinstance(outcome, Unrunnable), outcome
    assert outcome.code == code, outcome
    assert "\n" not in outcome.detail
    for word in words:
        assert word in outcome.detail, outcome.detail
    return outcome.detail


def test_a_minimal_task_has_the_formats_defaults(make_task: MakeTask) -> None:
    read = task(make_task())
    assert (read.name, read.image, read.has_dockerfile) == ("sum", "debian:12", False)
    assert (read.build_timeout_s, read.verifier_timeout_s, read.verifier_timeout_declared) == (600.0, 600.0, False)
    assert (read.agent_timeout_s, read.agent_user, read.cpus, read.memory_mb, read.workdir) == (None, None, None, None, None)
    assert (read.healthcheck, read.has_solution, read.uploads_environment, read.warnings) == (None, False, False, ())
    assert read.instruction == "Add the numbers.\n"


def test_b17_no_network_declared_means_the_formats_own_default_and_says_so(make_task: MakeTask) -> None:
    read = task(make_task())
    assert (read.network, read.network_origin) == (NetworkPolicy.PUBLIC, "format default")


@pytest.mark.parametrize(
    ("extra", "policy", "origin"),
    [
        ('network_mode = "no-network"', NetworkPolicy.NONE, "task network_mode"),
        ('network_mode = "public"', NetworkPolicy.PUBLIC, "task network_mode"),
        ("allow_internet = false", NetworkPolicy.NONE, "task allow_internet"),
        ("allow_internet = true", NetworkPolicy.PUBLIC, "task allow_internet"),
        ('allow_internet = true\nnetwork_mode = "no-network"', NetworkPolicy.NONE, "task network_mode"),
        (
            '[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "no-network"',
            NetworkPolicy.NONE,
            "task agent and verifier network_mode",
        ),
        (
            'network_mode = "no-network"\n[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "no-network"',
            NetworkPolicy.NONE,
            "task network_mode",
        ),
    ],
)
def test_b17_the_effective_network_and_its_origin(make_task: MakeTask, extra: str, policy: NetworkPolicy, origin: str) -> None:
    read = task(make_task(IMAGE + extra))
    assert (read.network, read.network_origin) == (policy, origin)


def test_an_unknown_key_that_is_like_one_of_the_formats_names_it(make_task: MakeTask) -> None:
    """An agent whose limit is mistyped has none."""
    toml = "[agent]\ntimeout_secs = 5\n[verifier]\ntimeout_sec = 5\ntimeout_secs = 6\n" + IMAGE + "memroy_mb = 5\nsurprise = 1\n"
    assert sorted(line for line in task(make_task(toml)).warnings if "unknown" in line) == [
        "task.toml: agent.timeout_secs: unknown key, ignored; did you mean timeout_sec?",
        "task.toml: environment.memroy_mb: unknown key, ignored; did you mean memory_mb?",
        "task.toml: environment.surprise: unknown key, ignored",
        "task.toml: verifier.timeout_secs: unknown key, ignored",
    ]


def test_an_old_task_with_every_section(make_task: MakeTask) -> None:
    toml = """
    version = "1.0"
    [metadata]
    author_name = "somebody"
    [agent]
    timeout_sec = 36000
    user = 1000
    colour = "green"
    [verifier]
    timeout_sec = 1200.5
    user = "root"
    env = { MODE = "strict" }
    [solution.env]
    HINT = "${HINT:-none}"
    [environment]
    build_timeout_sec = "1800"
    cpus = 4
    memory = "16G"
    storage = "2048M"
    workdir = "/app"
    env = { A = "plain", B = "${B}", C = "${C:-x:-y}", D = "pre${B}", E = "${E:-}" }
    [environment.healthcheck]
    command = "test -e /ready"
    retries = 5
    """
    read = task(make_task(toml, environment__Dockerfile="FROM x\n", solution__solve_DOT_sh="true\n"), B="from outside")
    assert (read.image, read.has_dockerfile, read.has_solution, read.uploads_environment) == (None, True, True, False)
    assert (read.agent_timeout_s, read.agent_user) == (36000.0, "1000")
    assert (read.verifier_timeout_s, read.verifier_user, read.verifier_timeout_declared) == (1200.5, "root", True)
    assert (read.build_timeout_s, read.cpus, read.memory_mb, read.storage_mb) == (1800.0, 4.0, 16384, 2048)
    assert read.env == {"A": "plain", "B": "from outside", "C": "x:-y", "D": "pre${B}", "E": ""}
    assert read.verifier_env == {"MODE": "strict"}
    assert read.solution_env == {"HINT": "none"}
    assert read.healthcheck == Healthcheck("test -e /ready", retries=5)
    notes = "\n".join(read.warnings)
    assert "agent.colour: unknown key, ignored" in notes and "did you mean" not in notes
    assert "environment.memory: deprecated, read as memory_mb = 16384" in notes
    assert "environment.build_timeout_sec: a number written as text" in notes
    assert len(read.warnings) == 4


def test_the_least_that_docker_can_give_is_accepted(make_task: MakeTask) -> None:
    read = task(make_task(IMAGE + "memory_mb = 6\ncpus = 0.01"))
    assert (read.memory_mb, read.cpus) == (6, 0.01)


def test_a_healthcheck_neither_spins_nor_waits_for_ever(make_task: MakeTask) -> None:
    wild = "interval_sec = 0\nstart_interval_sec = 0.001\nstart_period_sec = 1e9\nretries = 1000000000"
    read = task(make_task(IMAGE + f'[environment.healthcheck]\ncommand = "false"\n{wild}'))
    assert read.healthcheck == Healthcheck("false", 0.05, 30.0, 86400.0, 0.05, 1000)
    assert [note.partition(": ")[2] for note in read.warnings] == [
        "environment.healthcheck.interval_sec: 0 is out of bounds, 0.05 is used",
        "environment.healthcheck.start_period_sec: 1000000000.0 is out of bounds, 86400 is used",
        "environment.healthcheck.start_interval_sec: 0.001 is out of bounds, 0.05 is used",
        "environment.healthcheck.retries: 1000000000 is out of bounds, 1000 is used",
    ]


def test_a_prebuilt_image_beside_files_uploads_them(make_task: MakeTask) -> None:
    assert task(make_task(environment__data_DOT_csv="1\n")).uploads_environment
    assert not task(make_task(name="built", environment__Dockerfile="FROM x\n")).uploads_environment


def test_canary_lines_are_stripped(make_task: MakeTask) -> None:
    text = "<!-- benchmark CANARY guid 1 -->\n# canary again\n\n\n# Title\ncanary stays\n"
    assert task(make_task(instruction_DOT_md=text)).instruction == "# Title\ncanary stays\n"
    assert strip_canary("\n\nhello") == "hello"
    assert strip_canary("# Title\n# canary") == "# Title\n# canary"


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (IMAGE + '[verifier]\nenvironment_mode = "separate"', ("verifier.environment_mode", "separate")),
        (IMAGE + "[verifier.environment]\ncpus = 1", ("verifier.environment", "separate")),
        (IMAGE + '[[verifier.collect]]\ncommand = "x"', ("verifier.collect",)),
        (IMAGE + '[[steps]]\nname = "one"', ("steps", "multi-step")),
        (IMAGE + 'network_mode = "allowlist"\nallowed_hosts = ["a.org"]', ("environment.network_mode", "allowlist")),
        (IMAGE + '[agent]\nallowed_hosts = ["a.org"]', ("agent.allowed_hosts",)),
        (IMAGE + '[agent]\nnetwork_mode = "no-network"', ("phases whose networks differ", "agent no-network", "verifier public")),
        (
            IMAGE + 'network_mode = "public"\n[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "no-network"',
            ("phases whose networks differ", "environment public"),
        ),
        (IMAGE + 'skills_dir = "/skills"', ("environment.skills_dir",)),
        (IMAGE + '[[environment.mcp_servers]]\nname = "m"', ("environment.mcp_servers",)),
        (IMAGE + "gpus = 1", ("environment.gpus", "1")),
        (IMAGE + 'gpus = "2"', ("environment.gpus", "2")),
        (IMAGE + 'os = "Windows"', ("environment.os", "windows")),
        ('schema_version = "2.0"\n' + IMAGE, ("schema_version", "2.0")),
        ('schema_version = "10.0"\n' + IMAGE, ("schema_version", "10.0")),
        (f"schema_version = 0x{'f' * 5000}\n" + IMAGE, ("schema_version", "bits")),
    ],
)
def test_what_is_not_supported_is_refused_by_name(make_task: MakeTask, toml: str, words: tuple[str, ...]) -> None:
    refused(make_task(toml), "task_unsupported", *words)


@pytest.mark.parametrize("toml", ['[verifier]\nenvironment_mode = "separate"', "[verifier.environment]\ncpus = 1"])
@pytest.mark.parametrize("artifacts", ["", 'artifacts = ["/app/out"]\n'])
def test_d12_work_that_lies_elsewhere_scores_no_0_for_a_separate_verifier_is_not_run(
    make_task: MakeTask, toml: str, artifacts: str
) -> None:
    """Whatever a task declares to cross over: until both containers are run as it says, it parks."""
    refused(make_task(artifacts + IMAGE + toml), "task_unsupported", "a separate verifier")


@pytest.mark.parametrize("file", ["environment/docker-compose.yaml", "steps/one/instruction.md", "trajectory.json", "tests/.harborignore"])
def test_files_that_mean_something_unsupported(make_task: MakeTask, file: str) -> None:
    refused(make_task(**{file.replace("/", "__"): "x\n"}), "task_unsupported", file.split("/")[0])


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("a = 1\n[environment\n", ("task.toml:2",)),
        (IMAGE + "[agent]\ntimeout_sec = -5", ("agent.timeout_sec = -5", "greater than 0")),
        (IMAGE + "[agent]\ntimeout_sec = 0", ("agent.timeout_sec = 0", "greater than 0")),
        (IMAGE + "[verifier]\ntimeout_sec = nan", ("verifier.timeout_sec = nan", "greater than 0")),
        (IMAGE + "[verifier]\ntimeout_sec = inf", ("verifier.timeout_sec = inf",)),
        (IMAGE + "[verifier]\ntimeout_sec = true", ("verifier.timeout_sec = true", "must be a number")),
        (IMAGE + '[verifier]\ntimeout_sec = "soon"', ("verifier.timeout_sec = 'soon'",)),
        (IMAGE + f"[agent]\ntimeout_sec = 0x{'f' * 5000}", ("agent.timeout_sec = an integer of 20000 bits",)),
        (IMAGE + "cpus = -1", ("environment.cpus",)),
        (IMAGE + "memory_mb = 10.5", ("environment.memory_mb = 10.5", "whole number")),
        (IMAGE + "memory_mb = 5", ("environment.memory_mb = 5", "at least 6 MiB")),
        (IMAGE + 'memory = "4M"', ("environment.memory = '4M'", "at least 6 MiB")),
        (IMAGE + "cpus = 0.009", ("environment.cpus = 0.009", "at least 0.01")),
        (IMAGE + 'memory = "16 gigs"', ("environment.memory", "16G")),
        (IMAGE + 'memory = "nanG"', ("environment.memory",)),
        (IMAGE + 'memory = "1e400G"', ("environment.memory",)),
        (IMAGE + 'memory = "1G"\nmemory_mb = 2048', ("environment.memory", "memory_mb = 2048")),
        (IMAGE + 'workdir = "app"', ("environment.workdir = 'app'", "absolute")),
        (IMAGE + 'network_mode = "lan"', ("environment.network_mode = 'lan'", "no-network")),
        (IMAGE + "env = { A = 1 }", ("environment.env.A = 1", "text")),
        (IMAGE + 'env = { A = "a\\u0000b" }', ("environment.env.A", "NUL")),
        (IMAGE + 'env = { "A=B" = "1" }', ("environment.env", "A=B")),
        (IMAGE + 'env = { KEY = "${NOWHERE}" }', ("environment.env.KEY", "needs NOWHERE", "default")),
        (IMAGE + "[environment.healthcheck]\nretries = 1", ("healthcheck.command",)),
        (IMAGE + "[agent]\nuser = true", ("agent.user = true",)),
        (IMAGE + "[agent]\nuser = -1", ("agent.user = -1",)),
        (IMAGE + '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]', ("verifier.environment", "shared")),
        ("agent = 3\n" + IMAGE, ("agent = 3", "table")),
        ("environment = []", ("environment = a list",)),
        ("[environment]\ndocker_image = 7", ("docker_image = 7",)),
        ('[environment]\ndocker_image = "../info?"', ("docker_image = '../info?'", "image reference")),
        ('[environment]\ndocker_image = "a/../b"', ("docker_image", "image reference")),
        ('[environment]\ndocker_image = "/a"', ("docker_image", "image reference")),
        ("[verifier]\ntimeout_sec = 1e300\n" + IMAGE, ("verifier.timeout_sec = 1e+300", "at most 1e+09")),
        ("[agent]\ntimeout_sec = 9007199254740993\n" + IMAGE, ("agent.timeout_sec",)),
        ("", ("environment.docker_image", "missing", "Dockerfile")),
        (b"name = '\xff'\n", ("task.toml", "not UTF-8 at byte 8")),
        (IMAGE + "x = " + "[" * 5000, ("task.toml",)),
    ],
)
def test_a_broken_task_toml_is_one_clear_line(make_task: MakeTask, toml: str | bytes, words: tuple[str, ...]) -> None:
    refused(make_task(toml), "task_broken", *words)


def test_missing_and_unreadable_files(make_task: MakeTask, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "task_missing", "no such directory")
    refused(make_task(name="a", **{"task.toml": None}), "task_broken", "task.toml: missing")
    refused(make_task(name="b", **{"tests/test.sh": None}), "task_broken", "tests/test.sh: missing")
    refused(make_task(name="c", **{"instruction.md": None}), "task_broken", "instruction.md: missing")
    refused(make_task(name="d", **{"instruction.md": b"caf\xe9"}), "task_broken", "instruction.md: not UTF-8 at byte 3")
    turned = make_task(name="e", **{"tests/test.sh": None, "elsewhere/test.sh": "true\n"})
    (turned / "tests").symlink_to("elsewhere")
    refused(turned, "task_broken", "tests: a link", "a folder")
    escaping = make_task(name="f")
    (escaping / "\x1b[31m\nline").symlink_to("/etc")
    assert "\x1b" not in refused(escaping, "task_broken", "/etc")
    (file := tmp_path / "file").write_text("")
    refused(file, "task_missing")


def test_links_and_special_files(make_task: MakeTask, tmp_path: Path) -> None:
    outward = make_task(name="outward")
    (outward / "tests/secrets").symlink_to("../../elsewhere")
    refused(outward, "task_broken", "tests/secrets", "outside the task")
    absolute = make_task(name="absolute")
    (absolute / "passwd").symlink_to("/etc/passwd")
    refused(absolute, "task_broken", "/etc/passwd")
    fifo = make_task(name="fifo")
    os.mkfifo(fifo / "instruction.fifo")
    refused(fifo, "task_broken", "fifo")
    inward = make_task(name="inward", **{"instruction.md": None, "docs/text.md": "Hello\n"})
    (inward / "instruction.md").symlink_to("docs/text.md")
    assert task(inward).instruction == "Hello\n"
    loop = make_task(name="loop")
    (loop / "a").symlink_to("b")
    (loop / "b").symlink_to("a")
    assert isinstance(read_task(loop), Task)


def test_reading_writes_nothing(make_task: MakeTask) -> None:
    path = make_task(environment__Dockerfile="FROM x\n")
    before = {item: (item.stat().st_mtime_ns, item.stat().st_mode) for item in [path, *path.rglob("*")]}
    task(path)
    assert {item: (item.stat().st_mtime_ns, item.stat().st_mode) for item in [path, *path.rglob("*")]} == before


def test_host_too_small(make_task: MakeTask) -> None:
    read = task(make_task(IMAGE + "cpus = 4\nmemory_mb = 1024"))
    check = partial(check_host, read, pids=16384, limits_pids=True)
    assert check(4, 1 << 30) is None
    few, little = check(2, 1 << 30), check(4, (1 << 30) - 1)
    assert few is not None and few.code == "host_too_small" and "cpus = 4: this host has 2" in few.detail
    assert little is not None and little.code == "host_too_small" and "memory_mb = 1024: this host has 1023" in little.detail


def test_an_engine_that_would_leave_a_limit_of_processes_out_is_named(make_task: MakeTask) -> None:
    read = task(make_task(IMAGE))
    assert check_host(read, 4, 1 << 30, pids=None, limits_pids=False) is None
    parked = check_host(read, 4, 1 << 30, pids=64, limits_pids=False)
    assert parked is not None and parked.code == "engine_without_pids" and "limits.pids = 64: this engine cannot" in parked.detail


SAMPLE = """
schema_version = "1.4"
[task]
name = "org/sum"
[agent]
timeout_sec = 10.0
user = "nobody"
network_mode = "public"
[verifier]
timeout_sec = 20
env = { A = "${A:-b}" }
[environment]
docker_image = "debian:12"
cpus = 1
memory = "1G"
allow_internet = true
[environment.healthcheck]
command = "true"
interval_sec = 1
[solution]
env = {}
"""
KEYS = sorted(
    {line.split(" =")[0] for line in SAMPLE.splitlines() if " =" in line} | {"steps", "collect", "gpus", "storage", "network_mode"}
)
VALUES = st.sampled_from(
    [
        "-1",
        "0",
        "nan",
        "-inf",
        "true",
        '""',
        '"x"',
        '"1K"',
        '"\\u0000"',
        "[]",
        "[1]",
        "{}",
        "{ a = 1 }",
        "1979-05-27",
        "1e999",
        "0x" + "f" * 4000,
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """The sample with lines dropped, repeated, exchanged or given other values, and sometimes single bytes changed."""
    lines = SAMPLE.splitlines()
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, f"{draw(st.sampled_from(KEYS))} = {draw(VALUES)}")
            case 2 if " =" in lines[at]:
                lines[at] = f"{lines[at].split(' =')[0]} = {draw(VALUES)}"
            case _:
                lines.insert(draw(st.integers(0, len(lines))), lines[at])
        lines = lines or [""]
    data = bytearray("\n".join(lines).encode())
    for _ in range(draw(st.integers(0, 2))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=100, deadline=None)
@given(toml=mutated())
def test_a_mutated_task_toml_never_raises(make_task: MakeTask, toml: bytes) -> None:
    outcome = read_task(make_task(toml, name="mutated"), {})
    if isinstance(outcome, Task):
        table = tomllib.loads(toml.decode())
        assert outcome.agent_timeout_s is None or 0 < outcome.agent_timeout_s < float("inf")
        assert outcome.memory_mb is None or outcome.memory_mb > 0
        assert not table.get("steps") and outcome.image
    else:
        assert outcome.code in {"task_broken", "task_unsupported"}
        assert outcome.detail and "\n" not in outcome.detail and len(outcome.detail) <= 500


@pytest.mark.parametrize("image", ["debian", "a/b_c:1.0-rc.1", "localhost:5000/x/y:v1..2", "x@sha256:" + "a" * 64, "a--b:_t"])
def test_every_usual_image_reference_is_taken(make_task: MakeTask, image: str) -> None:
    assert task(make_task(f'[environment]\ndocker_image = "{image}"\n')).image == image


def test_a_folder_whose_name_is_no_text_is_refused_in_words_that_are(make_task: MakeTask) -> None:
    outcome = read_task(make_task(name=os.fsdecode(b"caf\xe9")))
    assert isinstance(outcome, Unrunnable) and outcome.code == "task_broken"
    assert outcome.name == "caf\\xe9"
    for text in (outcome.name, outcome.path, outcome.detail):
        text.encode()
