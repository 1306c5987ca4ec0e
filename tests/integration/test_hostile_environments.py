"""What the container really is: limits, users, variables, networks and images, read from inside; and gates that say no."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.demo.docker_http import Docker
from marathond.flow.images import image_tag
from tests.support.hostile import Ran, campaign
from tests.support.rig import BASE_IMAGE, make_task

pytestmark = pytest.mark.docker

CGROUP = """
one=/sys/fs/cgroup
quota=$(cat $one/cpu.max 2>/dev/null || echo "$(cat $one/cpu/cpu.cfs_quota_us) $(cat $one/cpu/cpu.cfs_period_us)")
memory=$(cat $one/memory.max 2>/dev/null || cat $one/memory/memory.limit_in_bytes)
"""
LOOK = f"""{CGROUP}
echo "$quota|$memory|$(pwd)|$(id -u)|$PLAIN|$DEFAULTED|$EMPTY|$(ls /sys/class/net | tr '\\n' ' ')" >/logs/artifacts/seen
"""
VERIFIER = "echo \"$(id -u) $SECRET $(ls /sys/class/net | tr '\\n' ' ')\" >/logs/artifacts/verifier; echo 1 >/logs/verifier/reward.txt\n"
# The hog is a child: the agent itself lives on, and so does the container.
HOG = "sh -c 'head -c 300000000 /dev/zero | tail -n 1 >/dev/null'; echo \"child exited $?\" >/logs/artifacts/child; exit 0"
MEMORY_MB, CPUS = 64, 0.5
PIDS, ASKED = 64, 200
# Bounded twice: by the container's limit, and by the loop itself.  A shell that cannot fork says so and ends.
MANY = "i=0; while [ $i -lt %d ]; do %s & i=$((i+1)); echo $i >/logs/artifacts/forked; done"
"""A shell's loop that starts so many processes, and counts those it got."""


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("environments")
    limits = f"cpus = {CPUS}\nmemory_mb = {MEMORY_MB}\n"
    env = '[environment.env]\nPLAIN = "a b\'c"\nDEFAULTED = "${MARATHOND_TEST_NOT_SET:-fallback}"\nEMPTY = ""\n'
    look = make_task(root, "look", instruction=LOOK, test=VERIFIER, environment=f'workdir = "/some/where"\n{limits}', toml=env)
    text = (look / "task.toml").read_text()
    (look / "task.toml").write_text(
        text.replace("[agent]\n", "[agent]\nuser = 1000\n").replace("[verifier]\n", '[verifier]\nuser = "nobody"\nenv.SECRET = "s3"\n')
    )
    tasks = [
        look,
        make_task(root, "networked", instruction=LOOK, test=VERIFIER, network="public"),
        make_task(root, "hog", instruction=HOG, test=VERIFIER, environment=limits, agent_s=200),
        make_task(root, "no-such-user", instruction="exit 0", test=VERIFIER),
        make_task(root, "many", instruction=MANY % (ASKED, "sleep 30"), test=VERIFIER, agent_s=200),
        make_task(root, "many-detached", instruction=MANY % (ASKED, "setsid sleep 30"), test=VERIFIER, agent_s=200),
    ]
    undeclared = make_task(root, "says-nothing", instruction=LOOK, test=VERIFIER)
    for name, old, new in (
        ("no-such-user", "[agent]\n", '[agent]\nuser = "nosuchuser"\n'),
        ("says-nothing", 'network_mode = "no-network"\n', ""),
    ):
        file = root / name / "task.toml"
        file.write_text(file.read_text().replace(old, new))
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}
    with campaign(docker_host, [*tasks, undeclared], arms, {"admission.passes": 1, "limits.pids": PIDS}) as ran:
        yield ran


def artifact(ran: Ran, task: str, name: str) -> str:
    return (ran.folder(task) / "artifacts" / name).read_text().strip()


def test_limits_user_folder_and_variables_hold_inside(ran: Ran) -> None:
    quota, memory, folder, uid, plain, defaulted, empty, interfaces = artifact(ran, "look", "seen").split("|")
    microseconds, period = map(int, quota.split())
    assert microseconds / period == CPUS and int(memory) == MEMORY_MB << 20
    assert (folder, uid, plain, defaulted, empty) == ("/some/where", "1000", "a b'c", "fallback", "")
    assert interfaces.split() == ["lo"]
    assert ran.facts("look")["cpus"] == ("0.5", "task") and ran.facts("look")["memory_mb"] == ("64", "task")


def test_the_verifier_runs_as_its_own_user_with_its_own_variables(ran: Ran) -> None:
    assert ran.reward("look") == 1.0
    assert artifact(ran, "look", "verifier").split() == ["65534", "s3", "lo"]


@pytest.mark.parametrize(
    ("task", "value", "origin", "interfaces"),
    [
        ("look", "none (NetworkMode=none)", "task network_mode", ["lo"]),
        ("networked", "public", "task network_mode", ["eth0", "lo"]),
        ("says-nothing", "public", "format default", ["eth0", "lo"]),
    ],
)
def test_b17_the_network_policy_of_each_phase_is_real_and_recorded_with_its_origin(
    ran: Ran, task: str, value: str, origin: str, interfaces: list[str]
) -> None:
    facts = ran.facts(task)
    assert facts["network agent"] == facts["network verifier"] == (value, origin)
    assert artifact(ran, task, "seen").split("|")[-1].split() == interfaces
    assert artifact(ran, task, "verifier").split()[1 if task != "look" else 2 :] == interfaces


def test_b09_memory_is_the_engines_word_and_the_agents_affair(ran: Ran) -> None:
    """The child died for memory; the agent's own exit is 0, and the verifier that ran afterwards had nothing to do with it."""
    assert artifact(ran, "hog", "child") == "child exited 137"
    assert ran.agent("hog", "exit_code, oom_killed") == (0, 1)
    assert ran.reward("hog") == 1.0 and ran.flags("hog") == []


def test_processes_without_end_meet_the_container_s_limit_and_the_trial_is_graded(ran: Ran) -> None:
    """The agent gets its errors, the host nothing, and what it started dies with it.  Who met the limit is named, who did not is not."""
    assert ran.facts("look")["pids"] == (str(PIDS), "config")
    assert 0 < int(artifact(ran, "many", "forked")) < PIDS
    assert ran.agent("many", "exit_code") != 0 and ran.reward("many") == 1.0 and ran.flags("many") == []
    named = dict(ran.rig.sql("SELECT subject, detail FROM finding WHERE code = 'pids_limit_hit'"))
    assert set(named) == {f"t{ran.trial(task):04}" for task in ("many", "many-detached")}
    assert "limits.pids" in named[f"t{ran.trial('many'):04}"]


def test_a_container_that_its_agent_left_full_is_graded_or_shown_to_a_person_and_never_repeated(ran: Ran) -> None:
    """What it detached is kept, as the policy says, and may leave the verifier no room: then a person decides."""
    assert 0 < int(artifact(ran, "many-detached", "forked")) < PIDS
    assert ran.voids("many-detached") == [] and ran.state("many-detached") in ("scored", "review")


def test_b08_a_user_that_does_not_exist_is_a_gate_with_the_engines_words(ran: Ran) -> None:
    ((code, reason),) = ran.voids("no-such-user")
    assert code == "agent_not_started" and "unable to find user nosuchuser" in reason
    assert ran.rig.sql("SELECT * FROM score WHERE trial_id = ?", ran.trial("no-such-user")) == []


GATE_S = 20.0
"""Of all of them: what only the one that hangs may use up."""
GATES = {
    "missing": ({"argv": ["/no/such/agent", "--go"]}, "agent_not_started", "/no/such/agent exited 1: no such file"),
    "not-in-path": ({"argv": ["nosuchagent"], "env": {"PATH": "/bin:/usr/bin"}}, "agent_not_started", "not in PATH=/bin:/usr/bin"),
    "not-executable": ({"argv": ["/etc/passwd"]}, "agent_not_started", "not executable by "),
    "wrong-folder": ({"argv": ["true"], "cwd": "/no/such/folder"}, "agent_not_started", "/no/such/folder"),
    "says-no": (
        {"argv": ["true"], "install_check": ["sh", "-c", "echo too old; exit 5"]},
        "install_check_failed",
        "exited 5: too old",
    ),
    "check-missing": ({"argv": ["true"], "install_check": ["nosuchcheck"]}, "install_check_failed", "exited 12"),
    "check-hangs": ({"argv": ["true"], "install_check": ["sleep", "600"]}, "install_check_failed", f"did not end within {GATE_S:g} s"),
}
GOOD = {"relative": ["./bin/agent"], "by-path": ["agent"], "builtin": ["test", "-e", "/"]}


@pytest.fixture(scope="module")
def gated(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("gates")
    arms = {name: {"kind": "command", **arm} for name, (arm, _, _) in GATES.items()}
    tool = root / "tool"
    (tool / "bin").mkdir(parents=True)
    (tool / "bin" / "agent").write_text("#!/bin/sh\necho here >/logs/artifacts/ran\n")
    (tool / "bin" / "agent").chmod(0o755)
    mounts = [{"source": str(tool), "target": "/opt/tool"}]
    for name, argv in GOOD.items():
        env = {"PATH": "/opt/tool/bin:/usr/bin:/bin"}
        arms[name] = {"kind": "command", "argv": argv, "cwd": "/opt/tool", "env": env, "mounts": mounts, "user": "1000"}
    with campaign(docker_host, [make_task(root, "plain")], arms, {"admission.passes": 1, "limits.gate_timeout_s": GATE_S}) as ran:
        yield ran


@pytest.mark.parametrize("arm", GATES)
def test_b08_an_agent_that_cannot_start_is_infrastructure_with_the_reason(gated: Ran, arm: str) -> None:
    ((code, reason),) = gated.voids("plain", arm)
    assert code == GATES[arm][1] and GATES[arm][2] in reason
    assert gated.rig.sql("SELECT * FROM trial_agent WHERE trial_id = ?", gated.trial("plain", arm)) == []


@pytest.mark.parametrize("arm", GOOD)
def test_b08_an_agent_that_is_there_starts_however_it_is_named(gated: Ran, arm: str) -> None:
    assert gated.reward("plain", arm) == 1.0
    assert gated.agent("plain", "exit_code", arm) == 0
    assert (gated.folder("plain", arm) / "artifacts" / "ran").exists() is (arm != "builtin")


def test_b14_the_image_is_the_digest_of_its_context_and_an_edited_dockerfile_is_another(
    docker_host: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def run(root: Path, words: str) -> tuple[str, str, str]:
        task = make_task(root, "hostile-built", test=f"cp /which /logs/verifier/which; {VERIFIER}")
        (task / "task.toml").write_text((task / "task.toml").read_text().replace(f'docker_image = "{BASE_IMAGE}"\n', ""))
        (task / "environment").mkdir()
        (task / "environment" / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nRUN echo {words} >/which\n")
        with campaign(docker_host, [task], {"sh": {"kind": "nop"}}) as ran:
            facts = ran.facts("hostile-built")
            assert facts["image"][1] == "built from environment/"
            assert (ran.folder("hostile-built") / "verifier" / "which").read_text() == f"{words}\n"
            document = json.loads((ran.folder("hostile-built") / "result.json").read_text())
            assert facts["context digest"][0] in json.dumps(document)
            row = ran.rig.one("SELECT image_id, context_digest FROM container WHERE trial_id = ?", ran.trial("hostile-built"))
            assert row == (facts["image"][0], facts["context digest"][0])
            return facts["image"][0], facts["context digest"][0], words

    first = run(tmp_path_factory.mktemp("one"), "first")
    again = run(tmp_path_factory.mktemp("two"), "first")
    other = run(tmp_path_factory.mktemp("three"), "other")
    for _, digest, _ in (first, other):
        status, answer = Docker(docker_host).call("DELETE", f"/images/{image_tag('hostile-built', digest)}")
        assert status == 200, answer
    assert first == again
    assert first[0] != other[0] and first[1] != other[1]
