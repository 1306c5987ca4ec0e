"""The units under a real systemd, on a whole small host: tests/support/systemd_box.py.

One boot serves all tests here, in their order; each leaves the daemon running, two agents at work.  Nothing asserts how long anything took
but systemd's own limits, which the units set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.demo.host import SetupError
from marathond.gateway.files import Listener, key_hash, read_ack, write_json, write_listener
from marathond.service.exits import Exit
from tests.conftest import IN_CI
from tests.support.rig import make_task
from tests.support.systemd_box import CONFIG, ROOT, STATE, Box, booted_box, missing

# The image is made within the first test's time where it is not cached.
pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]

SOURCES, PROGRAMS = "/usr/src/marathond", "/opt/marathond/bin"
WORKS = """echo run >>/logs/artifacts/runs
while ! [ -e /logs/artifacts/go ]; do date +%s%N >/logs/artifacts/beat; sleep 1; done"""
SETTINGS = f"""
[campaign]
name = "boxed"
tasks = ["/srv/tasks/*"]
[arms.a]
kind = "command"
argv = ["sh", "-c", '''{WORKS}''']
[arms.b]
kind = "command"
argv = ["sh", "-c", '''{WORKS}''']
[admission]
concurrency = 3
reserve_memory_mb = 0
disk_floor_percent = 0.1
disk_floor_gb = 0.1
[engine]
call_timeout_s = 20
"""
DROP_INS = "/etc/systemd/system/marathond.service.d"
WATCHDOG_S = 15
"""Shorter than the unit's own, for patience alone."""


@pytest.fixture(scope="module")
def box(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Booted, with marathond installed, configured and enabled nowhere yet."""
    if reason := missing():
        if IN_CI:
            pytest.fail(reason)
        pytest.skip(reason)
    tasks = tmp_path_factory.mktemp("boxed")
    make_task(tasks, "long", agent_s=50_000, verifier_s=300)
    make_task(tasks, "short", agent_s=4, verifier_s=300)
    try:
        with booted_box(docker_host) as made:
            made.copy_sources(SOURCES)
            made.copy_in(tasks, "/srv/tasks")
            said = made.make("install", SOURCES)
            assert "installed /etc/systemd/system/marathond.service" in said, said
            made.write(CONFIG, SETTINGS)
            made.write(f"{DROP_INS}/test.conf", f"[Service]\nWatchdogSec={WATCHDOG_S}\nRestartSec=1\n")
            made.systemctl("daemon-reload")
            made.run(f"{PROGRAMS}/marathonctl", "init")
            yield made
    except SetupError as err:
        if IN_CI:
            pytest.fail(str(err))
        pytest.skip(str(err))


Agents = dict[str, tuple[str, str]]
"""Trial to its container's id and the moment that container started."""


def agents(box: Box) -> Agents:
    """The two that work until they are told to end."""
    rows = box.sql("SELECT trial, container FROM v_trial WHERE task = 'long' AND state = 'running' ORDER BY trial")
    started = box.run("docker", "inspect", "-f", "{{.State.StartedAt}} {{.State.Running}}", *(row[1] for row in rows)).stdout.splitlines()
    return {trial: (container, at) for (trial, container), at in zip(rows, started, strict=True)}


def artifacts(box: Box, trial: str) -> Path:
    return box.state / "r" / trial / "logs" / "artifacts"


def went_on(box: Box, before: Agents) -> None:
    """The same containers, and in each the agent still at work that was begun once."""
    assert agents(box) == before
    for trial in before:
        beat = artifacts(box, trial) / "beat"
        last = beat.read_text()
        box.until(lambda beat=beat, last=last: beat.read_text() not in ("", last), f"the agent of {trial} goes on")
        assert (artifacts(box, trial) / "runs").read_text() == "run\n"


def lives(box: Box) -> int:
    """How many daemon lives have taken both over."""
    counted = "SELECT count(*) FILTER (WHERE event = 'reattached') AS n FROM v_event JOIN v_trial v USING (trial)"
    return int(box.sql(f"SELECT min(n) FROM ({counted} WHERE v.task = 'long' AND v.live GROUP BY trial)")[0][0])


def taken_over(box: Box, times: int) -> None:
    box.until(lambda: lives(box) >= times, "the next daemon life takes both over")


def pid_of(box: Box, unit: str = "marathond") -> int:
    return int(box.show(unit, "MainPID")["MainPID"])


def active(box: Box, unit: str = "marathond") -> bool:
    return box.show(unit, "ActiveState")["ActiveState"] == "active"


def another_life(box: Box, pid: int) -> None:
    """systemd itself started the daemon again, and it is ready."""
    box.until(lambda: active(box) and pid_of(box) not in (0, pid), "systemd starts marathond again")


@pytest.fixture
def before(box: Box) -> Agents:
    """The daemon runs, with systemd's counters at their beginning, and both agents are at work."""
    box.systemctl("reset-failed")
    if not active(box):
        box.systemctl("start", "marathond")
    at_work = "SELECT count(*) = 2 FROM v_trial v JOIN trial_fact f ON v.trial = printf('t%04d', f.trial_id) AND f.name = 'agent session'"
    box.wait_sql(f"{at_work} WHERE task = 'long' AND state = 'running'")
    box.until(lambda: all((artifacts(box, trial) / "beat").exists() for trial in agents(box)), "both agents are at work")
    return agents(box)


def test_start_is_over_when_the_daemon_is_ready_and_status_tells_what_it_does(box: Box) -> None:
    box.systemctl("start", "marathond")
    assert box.sql("SELECT ready_at_ms IS NOT NULL FROM run") == [(1,)]  # Type=notify: not a moment earlier
    box.until(lambda: "campaign boxed, 2 trials" in box.show("marathond", "StatusText")["StatusText"], "the status line follows")
    shown = box.systemctl("status", "marathond")
    assert "Active: active (running)" in shown
    assert 'Status: "campaign boxed, 2 trials"' in shown
    assert " t000" in shown  # the last lines of the journal, for a person


def test_the_unit_lets_the_daemon_do_all_that_a_trial_needs(box: Box, before: Agents) -> None:
    """Two agents met their deadline meanwhile: processes of a container were read and killed, owners set, artifacts written."""
    assert len(before) == 2
    box.wait_sql("SELECT count(*) = 2 FROM v_trial WHERE task = 'short' AND state = 'scored' AND ended_by = 'deadline' AND reward = 1.0")
    box.wait_sql("SELECT count(*) = 2 FROM artifact_export")
    assert box.sql("SELECT code, detail FROM finding WHERE severity IN ('error', 'stop_loss')") == []


def test_the_journal_has_fields_to_search_by(box: Box, before: Agents) -> None:
    ((trial, cell, arm),) = box.sql("SELECT trial, cell, arm FROM v_trial WHERE task = 'short' LIMIT 1")
    # An entry comes after the ledger's row, and the journal takes its time.
    words = ("-u", "marathond", f"TRIAL={trial}")
    box.until(lambda: "scored" in {entry["EVENT"] for entry in box.journal(*words)}, "the journal has it")
    told = box.journal(*words)
    assert [entry for entry in told if entry["TRIAL"] != trial] == []
    scored = next(entry for entry in told if entry["EVENT"] == "scored")
    assert {name: scored[name] for name in ("CELL", "ARM", "TASK", "CAMPAIGN")} == {
        "CELL": cell, "ARM": arm, "TASK": "short", "CAMPAIGN": "boxed",
    }  # fmt: skip
    assert (scored["PRIORITY"], scored["SYSLOG_IDENTIFIER"], scored["_SYSTEMD_UNIT"]) == ("6", "marathond", "marathond.service")
    assert scored["MESSAGE"].startswith(f"{trial} scored: {arm}, short, reward 1.0")
    assert {"admitted", "agent_started", "scored"} <= {entry["EVENT"] for entry in told}
    # What a person types; and nothing came by way of stderr, as a line that only looks like an entry.
    lines = box.run("journalctl", "--no-pager", "-o", "cat", f"TRIAL={trial}").stdout.splitlines()
    assert lines == [entry["MESSAGE"] for entry in told]
    assert box.journal("_SYSTEMD_UNIT=marathond.service", "_TRANSPORT=stdout") == []
    assert box.journal(f"ARM={arm}", f"CELL={cell}", "EVENT=scored", "-u", "marathond") == [scored]


WHOLE = """
import pathlib, marathond
from marathond.ledger import migrate
package = pathlib.Path(marathond.__file__).parent
print(migrate.migrations_dir().relative_to(package), len(migrate.load_migrations()))
for place in ("_systemd", "benchmarks", "demo/samples", "config.example.toml"):
    found = [package / place] if (package / place).is_file() else sorted((package / place).rglob("*"))
    print(place, sum(path.is_file() for path in found))
"""


def test_what_is_installed_is_whole(box: Box) -> None:
    """By a wheel, as pipx and uv do it: what lies beside the package in a checkout lies within it there, and the units can be installed."""
    here = [ROOT / "systemd", ROOT / "marathond/benchmarks", ROOT / "marathond/demo/samples"]
    counts = [sum(path.is_file() for path in folder.rglob("*")) for folder in here]
    expected = f"_migrations {len(list((ROOT / 'migrations').glob('*.sql')))}\n_systemd {counts[0]}\nbenchmarks {counts[1]}\n"
    found = box.run("env", "-C", "/", f"{PROGRAMS}/python", "-c", WHOLE).stdout
    assert found == f"{expected}demo/samples {counts[2]}\nconfig.example.toml 1\n"
    script = box.sh("echo /opt/marathond/lib/python3*/site-packages/marathond/_systemd/install.sh").strip()
    said = box.run("env", "DESTDIR=/tmp/staged", f"PROGRAM={PROGRAMS}/marathond", "sh", script).stdout
    assert "installed /tmp/staged/etc/marathond/config.toml (an example: edit it)" in said
    units = box.sh("cd /tmp/staged/etc/systemd/system; for unit in *; do cmp $unit /etc/systemd/system/$unit; echo $unit; done")
    assert units == "marathond-gateway.service\nmarathond.service\n"


def test_a_reload_reads_the_configuration_again(box: Box, before: Agents) -> None:
    pid = pid_of(box)
    box.systemctl("reload", "marathond")
    box.until(lambda: box.journal("-u", "marathond", "EVENT=reloaded"), "it says so")
    assert pid_of(box) == pid
    went_on(box, before)


def test_a_restart_leaves_agents_alone(box: Box, before: Agents) -> None:
    taken, pid = lives(box), pid_of(box)
    box.systemctl("restart", "marathond")
    assert pid_of(box) not in (0, pid)
    taken_over(box, taken + 1)
    went_on(box, before)


def test_a_stop_is_a_matter_of_seconds_and_leaves_agents_alone(box: Box, before: Agents) -> None:
    taken = lives(box)
    box.systemctl("stop", "marathond")
    seen = box.show("marathond", "ActiveState", "Result", "ExecMainStatus")
    # Success: systemd had no need of SIGKILL, so it was within TimeoutStopSec.
    assert seen == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    went_on(box, before)
    assert box.sql("SELECT count(*) FROM run WHERE stopped_at_ms IS NULL AND run_id = (SELECT max(run_id) FROM run)") == [(0,)]
    box.systemctl("start", "marathond")
    taken_over(box, taken + 1)
    went_on(box, before)


def test_f02_a_killed_daemon_is_started_again_and_takes_over(box: Box, before: Agents) -> None:
    taken, pid = lives(box), pid_of(box)
    box.run("kill", "-KILL", str(pid))
    another_life(box, pid)
    assert box.show("marathond", "NRestarts") == {"NRestarts": "1"}
    taken_over(box, taken + 1)
    went_on(box, before)


def test_a_stopped_daemon_is_aborted_by_the_watchdog_and_its_successor_takes_over(box: Box, before: Agents) -> None:
    taken, pid = lives(box), pid_of(box)
    box.run("kill", "-STOP", str(pid))
    another_life(box, pid)
    of_systemd = ("-u", "marathond", "_PID=1")
    words = f"Watchdog timeout (limit {WATCHDOG_S}s)"
    box.until(lambda: any(words in entry["MESSAGE"] for entry in box.journal(*of_systemd)), "systemd says why")
    taken_over(box, taken + 1)
    went_on(box, before)


def test_b10_a_docker_that_hangs_is_no_reason_to_start_the_daemon_again(box: Box, before: Agents) -> None:
    pid = pid_of(box)
    box.systemctl("kill", "--kill-whom=main", "--signal=STOP", "docker")
    try:
        hung = box.run("timeout", "3", "docker", "version", check=False)
        assert hung.returncode == 124, "docker answers"
        # Twice what the watchdog waits for, by its own clock: each status line comes with a ping.
        box.sh(f"sleep {2 * WATCHDOG_S + WATCHDOG_S // 2}")
        assert pid_of(box) == pid
        assert box.show("marathond", "ActiveState", "NRestarts") == {"ActiveState": "active", "NRestarts": "0"}
    finally:
        box.systemctl("kill", "--kill-whom=main", "--signal=CONT", "docker")
    went_on(box, before)


def test_without_docker_the_daemon_starts_degraded_and_goes_on_when_docker_is_there(box: Box, before: Agents) -> None:
    taken = lives(box)
    box.systemctl("stop", "marathond", "docker.socket", "docker")
    box.systemctl("start", "marathond")
    assert active(box)
    assert "degraded: " in box.show("marathond", "StatusText")["StatusText"]
    pid = pid_of(box)
    box.systemctl("start", "docker")
    taken_over(box, taken + 1)
    box.until(lambda: "degraded" not in box.show("marathond", "StatusText")["StatusText"], "the status line is well again")
    assert pid_of(box) == pid
    went_on(box, before)


def test_a_refusal_is_told_and_not_started_again(box: Box, before: Agents) -> None:
    box.systemctl("stop", "marathond")
    box.write(CONFIG, SETTINGS + "\n[nonsense]\nx = 1\n")
    try:
        box.systemctl("start", "marathond", check=False)
        seen = box.show("marathond", "ActiveState", "Result", "ExecMainStatus", "NRestarts")
        refused = str(int(Exit.REFUSED_TO_START))
        assert seen == {"ActiveState": "failed", "Result": "exit-code", "ExecMainStatus": refused, "NRestarts": "0"}
        box.until(lambda: "nonsense" in box.journal("_SYSTEMD_UNIT=marathond.service", "-n", "1")[0]["MESSAGE"], "the journal has it")
        (last,) = box.journal("_SYSTEMD_UNIT=marathond.service", "-n", "1")
        assert (last["PRIORITY"], "nonsense" in last["MESSAGE"]) == ("3", True), last
    finally:
        box.write(CONFIG, SETTINGS)
    box.systemctl("start", "marathond")
    went_on(box, before)


@pytest.mark.parametrize("unit", ["marathond", "marathond-gateway"])
def test_the_units_are_hardened_and_each_exception_has_its_reason(box: Box, unit: str) -> None:
    graded = box.run("systemd-analyze", "security", "--no-pager", "--threshold=40", unit, check=False)
    assert graded.returncode == 0, graded.stdout
    assert box.run("systemd-analyze", "security", "--no-pager", "--threshold=1", unit, check=False).returncode != 0  # it can fail
    told = "\n".join(line for line in box.run("cat", f"/etc/systemd/system/{unit}.service").stdout.splitlines() if line.startswith("#"))
    missed = []
    for look in json.loads(box.run("systemd-analyze", "security", "--json=short", unit).stdout):
        # `CapabilityBoundingSet=~CAP_(CHOWN|FSETID|SETFCAP)`: one of the three; `User=/DynamicUser=`: one of the two.
        setting, _, value = look["name"].partition("=~")
        words = value.replace("CAP_", " ").replace("AF_", " ") if value else setting.replace("=", " ")
        names = words.translate(str.maketrans("()|/@*", "      ")).split()
        if look["exposure"] is not None and not look["set"] and not any(name in told for name in names):
            missed.append(look["name"])
    assert missed == []
    verified = box.run("systemd-analyze", "verify", "--man=no", f"/etc/systemd/system/{unit}.service", check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


def test_the_gateway_has_its_key_its_folder_and_a_life_of_its_own(box: Box, before: Agents) -> None:
    box.run("install", "-m", "600", "/dev/stdin", "/etc/marathond/provider.key", stdin="sk-boxed\n")
    box.systemctl("start", "marathond-gateway")  # ready while it waits for its settings
    folder, pid = box.state / "gateway", pid_of(box, "marathond-gateway")
    assert box.sh(f"stat -c %a {STATE}/gateway") == "750\n"  # StateDirectory
    route = {"base_url": "http://127.0.0.1:9/v1", "key_credential": "provider"}
    write_json(folder / "gateway.json", {"format": 1, "routes": {"main": route}})
    # A listener in the network namespace of a container that runs, opened under the unit's own hardening.
    trial, (container, _) = next(iter(before.items()))
    first = box.run("docker", "inspect", "-f", "{{.State.Pid}} {{.State.StartedAt}}", container).stdout.split()
    stat = box.run("cat", f"/proc/{first[0]}/stat").stdout.rpartition(")")[2].split()
    write_listener(
        folder,
        Listener(
            name=trial, version=1, trial=trial, account="agent", container_id=container, started_at=first[1], pid=int(first[0]),
            start_ticks=int(stat[19]), boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(), port=8000,
            key_sha256=key_hash("dummy"), route="main", network="none",
        ),
    )  # fmt: skip
    ack = box.until(lambda: read_ack(folder, trial), "the gateway answers for the listener")
    assert ack.state == "listening", ack
    ask = "import urllib.request as u, urllib.error as e\ntry: u.urlopen('http://127.0.0.1:8000/v1/responses', b'{}')\n"
    ask += "except e.HTTPError as said: print(said.code)"
    assert box.run("nsenter", "-n", "-t", first[0], "python3", "-c", ask).stdout == "401\n"
    # Nothing else of the host may be written from there, and the key is the unit's alone.
    inside = ["nsenter", "-m", "-t", str(pid)]
    assert "Read-only" in box.run(*inside, "touch", f"{STATE}/x", check=False).stderr
    assert box.run(*inside, "cat", "/run/credentials/marathond-gateway.service/provider").stdout == "sk-boxed\n"
    assert "sk-boxed" not in box.run("sh", "-c", f"tr '\\0' '\\n' </proc/{pid}/environ").stdout
    # Neither ends with the other.
    daemon = pid_of(box)
    box.systemctl("restart", "marathond")
    assert (pid_of(box, "marathond-gateway"), pid_of(box) == daemon) == (pid, False)
    daemon = pid_of(box)
    box.systemctl("restart", "marathond-gateway")
    assert (pid_of(box, "marathond-gateway") == pid, pid_of(box)) == (False, daemon)
    assert active(box, "marathond-gateway")
    assert {entry["SYSLOG_IDENTIFIER"] for entry in box.journal("_SYSTEMD_UNIT=marathond-gateway.service")} == {"marathond-gateway"}
    went_on(box, before)


def test_make_install_over_a_running_daemon_is_an_upgrade(box: Box, before: Agents) -> None:
    taken, pid = lives(box), pid_of(box)
    box.sh(f"sed -i 's/^__version__ = .*/__version__ = \"9.8.7\"/' {SOURCES}/marathond/__init__.py")
    box.write(CONFIG, SETTINGS + "# mine\n")
    said = box.make("install", SOURCES)
    assert f"kept      {CONFIG}" in said
    assert "next: systemctl restart marathond" in said
    assert pid_of(box) == pid  # nothing is restarted behind anybody's back
    box.systemctl("restart", "marathond")
    taken_over(box, taken + 1)
    went_on(box, before)
    assert box.run("marathonctl", "--version").stdout.split()[-1] == "9.8.7"
    assert box.sql("SELECT version FROM run ORDER BY run_id DESC LIMIT 1") == [("9.8.7",)]


def test_what_is_enabled_comes_back_after_a_reboot_in_order(box: Box, before: Agents) -> None:
    box.systemctl("enable", "marathond", "marathond-gateway")
    box.systemctl("stop", "marathond-gateway")
    box.reboot()
    box.until(lambda: active(box) and active(box, "marathond-gateway"), "both units are back")
    assert set(box.show("marathond", "After")["After"].split()) >= {"docker.service", "network-online.target", "local-fs.target"}
    assert "network-online.target" in box.show("marathond", "Wants")["Wants"]
    began = int(box.show("marathond", "ExecMainStartTimestampMonotonic")["ExecMainStartTimestampMonotonic"])
    for earlier in ("docker", "network-online.target"):
        assert 0 < int(box.show(earlier, "ActiveEnterTimestampMonotonic")["ActiveEnterTimestampMonotonic"]) <= began
    # The agents died with the host: void, with a code, and the cells are tried again.
    box.wait_sql(f"SELECT count(*) = 2 FROM v_trial WHERE state = 'voided' AND trial IN ({', '.join(repr(trial) for trial in before)})")
    (code,) = {row[0] for row in box.sql("SELECT void_code FROM v_trial WHERE state = 'voided'")}
    words = ("-u", "marathond", "EVENT=voided", f"CODE={code}")
    box.until(lambda: len(box.journal(*words)) >= len(before), "the journal has both")
    told = box.journal(*words)
    assert {entry["TRIAL"] for entry in told} == set(before)
    assert {entry["PRIORITY"] for entry in told} == {"4"}
    box.wait_sql("SELECT count(*) = 2 FROM v_trial WHERE task = 'long' AND state = 'running' AND attempt = 2")


def test_uninstall_waits_for_trials_and_leaves_what_is_not_its_own(box: Box, before: Agents) -> None:
    refused = box.run("sh", f"{SOURCES}/systemd/uninstall.sh", check=False)
    assert (refused.returncode, active(box)) == (1, True)
    assert "2 containers of trials are running" in refused.stderr
    box.run("marathonctl", "stop", "--now", "--reason", "the end")
    box.until(lambda: box.show("marathond", "ActiveState")["ActiveState"] == "inactive", "marathond has ended")
    said = box.run("sh", f"{SOURCES}/systemd/uninstall.sh").stdout
    kept = [line.split()[1] for line in said.splitlines() if line.startswith("kept")]
    assert kept == ["/etc/marathond", STATE, DROP_INS]
    gone = ["/etc/systemd/system/marathond.service", "/etc/systemd/system/multi-user.target.wants/marathond-gateway.service"]
    for path in (*gone, "/usr/local/bin/marathonctl", "/opt/marathond"):
        assert box.run("test", "-e", path, check=False).returncode == 1, path
    assert box.show("marathond", "LoadState") == box.show("marathond-gateway", "LoadState") == {"LoadState": "not-found"}
    assert (box.state / "ledger.db").exists()
    again = box.run("env", "PREFIX=/usr", "sh", f"{SOURCES}/systemd/uninstall.sh", check=False)
    assert (again.returncode, "is not what make install made" in again.stderr) == (1, True)
