"""`marathonctl verify-envs` and `canary`: the daemon's own way through gates and deadlines, on the side, and nothing left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from marathond.practice.script import parse
from marathond.practice.server import PracticeServer, practising
from marathond.staging.manifest import StagedTree
from tests.support.codex_env import CACHE, codex_tree
from tests.support.loopx_env import section
from tests.support.model_rig import MODEL
from tests.support.prebuilds import until
from tests.support.published import printed
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

ARMS = '[arms.plain]\nkind = "codex"\ndrive = "turn"\n[arms.goal]\nkind = "codex"\ndrive = "goal"\n'
WITH_LOOPX = (
    '[arms.ssh-goal]\nkind = "codex"\ndrive = "goal"\nloopx = "codex_app_ssh_goal"\n'
    '[arms.codex-cli]\nkind = "codex"\ndrive = "goal"\nloopx = "codex_cli"\n'
    '[arms.heartbeat]\nkind = "codex"\ndrive = "wake"\nloopx = "generic_cli"\n'
)


@pytest.fixture(scope="module")
def provider() -> Iterator[PracticeServer]:
    script = parse('[[script]]\n[[script.step]]\nsay = "Done."\n')
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(practising(script)) as server:
        yield server


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="mt-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


ASKS_S, ENDS_S = "30", "300"
"""Seconds, as they are typed.  Within the first an agent must have asked its model (else its bird is ``wrong``), and all of it is waited
for; within the second a conversation must be over.  Either takes one on an idle machine."""

CREDENTIAL = 'key_credential = "provider"'
"""The key as the gateway's unit has it, and nobody else."""


def write_config(root: Path, docker_host: str, url: str, tasks: list[Path], more: str = "") -> Path:
    state = root / "state"
    state.mkdir()
    codex_tree()
    (state / "staged").symlink_to(CACHE / "staged")
    (root / "key").write_text("sk-real\n")
    config = root / "marathond.toml"
    config.write_text(
        f'[daemon]\nstate_dir = "state"\n[engine]\nurl = "{docker_host}"\ncall_timeout_s = 90\n[admission]\nreserve_memory_mb = 0\n'
        f'[campaign]\nname = "c"\ntasks = {json.dumps([str(task) for task in tasks])}\n{ARMS}[codex]\nmodel = "{MODEL}"\n'
        f'[gateway.routes.main]\nbase_url = "{url}/v1"\n{CREDENTIAL}\n{more}'
    )
    return config


def ctl(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(config), *words]
    return subprocess.run(argv, text=True, capture_output=True, check=False, timeout=500, env={**os.environ, "COLUMNS": "140"})


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def containers(docker_host: str, ledger: Path) -> list[str]:
    """Those that carry the label of this very ledger: other tests may run beside us."""
    if not ledger.exists():
        return []
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=60)) as connection:
        ledger_id = connection.execute("SELECT ledger_id FROM ledger_identity").fetchone()[0]
    return labelled(docker_host, ledger_id)


def labelled(docker_host: str, ledger_id: str) -> list[str]:
    argv = ["docker", "-H", docker_host, "ps", "-aq", "--filter", f"label=marathond.ledger={ledger_id}"]
    return subprocess.run(argv, text=True, capture_output=True, check=True).stdout.split()


def test_every_environment_is_tried_and_not_a_token_is_asked_for(
    tmp_path: Path, short: Path, docker_host: str, provider: PracticeServer
) -> None:
    tasks = [
        make_task(tmp_path, "good"),
        make_task(tmp_path, "networked", network="public"),
        make_task(tmp_path, "ill", environment='[environment.healthcheck]\ncommand = "false"\nretries = 1\ninterval_sec = 0.1\n'),
    ]
    config = write_config(short, docker_host, provider.url, tasks)
    done = ctl(config, "verify-envs", "--json")
    assert done.returncode == 1, done.stderr
    found = printed("verify-envs", done.stdout)
    outcomes = {(cell["task"], cell["arm"]): cell["outcome"] for cell in found["cells"]}
    assert outcomes == {
        **{(task, arm): "ok" for task in ("good", "networked") for arm in ("plain", "goal")},
        **{("ill", arm): "healthcheck_failed" for arm in ("plain", "goal")},
    }
    good = next(cell for cell in found["cells"] if cell["outcome"] == "ok")
    assert "sidecar: codex-code-mode-host answers" in good["detail"] and "model: a scripted turn" in good["detail"]
    assert found["requests"] == 0 and provider.tally("t1").requests == 0
    assert list((short / "state").iterdir()) == [short / "state" / "staged"]  # the rehearsal's ledger, logs and folders are gone
    again = ctl(config, "verify-envs", "--task", "good", "--arm", "goal")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "1 of 1 environment ok; not a token was asked for")
    assert "good" in ctl(config, "verify-envs", "--task", "godo").stderr


def test_one_arm_of_a_campaign_with_contrasts_is_tried_alone(tmp_path: Path, short: Path, docker_host: str) -> None:
    """Contrasts name arms that are not tried then; that they do is a mistake in every other configuration."""
    (short / "state").mkdir()
    task, config = make_task(tmp_path, "t"), short / "marathond.toml"
    config.write_text(
        f'[daemon]\nstate_dir = "state"\n[engine]\nurl = "{docker_host}"\ncall_timeout_s = 90\n[admission]\nreserve_memory_mb = 0\n'
        f'[campaign]\nname = "c"\ntasks = {json.dumps([str(task)])}\n[comparison]\ncontrasts = [["a", "b"], ["b", "c"]]\n'
        + "".join(f'[arms.{arm}]\nkind = "{kind}"\n' for arm, kind in (("a", "nop"), ("b", "oracle"), ("c", "nop")))
    )
    tried = {
        arms: {cell["arm"]: cell["outcome"] for cell in printed("verify-envs", done.stdout)["cells"]}
        for arms in (("b",), ("a", "c"), ())
        if (done := ctl(config, "verify-envs", "--json", *(word for arm in arms for word in ("--arm", arm)))).returncode == 0
    }
    assert tried == {("b",): {"b": "ok"}, ("a", "c"): {"a": "ok", "c": "ok"}, (): dict.fromkeys("abc", "ok")}
    wrong = ctl(config, "verify-envs", "--arm", "d")
    assert wrong.returncode == 2 and "--arm d: no such arm in the campaign" in wrong.stderr
    config.write_text(config.read_text().replace('["b", "c"]', '["b", "d"]'))
    wrong = ctl(config, "verify-envs", "--arm", "a")
    assert wrong.returncode == 2 and "comparison.contrasts" in wrong.stderr, "what is wrong with the campaign itself is still said"


def test_c15_the_canary_sees_every_arm_through_its_own_deadline(
    tmp_path: Path, short: Path, docker_host: str, provider: PracticeServer
) -> None:
    config = write_config(short, docker_host, provider.url, [make_task(tmp_path, "t", agent_s=300)])
    done = ctl(config, "canary", "--deadline", ASKS_S, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    found = printed("canary", done.stdout)["arms"]
    assert {bird["arm"]: (bird["ended_by"], bird["limit"], bird["state"], bird["verdict"]) for bird in found} == dict.fromkeys(
        ("plain", "goal"), ("deadline", f"{ASKS_S} s: own", "scored", "ok")
    )
    assert all(bird["requests"] for bird in found) and provider.tally("t1").requests == 0  # the configured provider was not asked
    # The same against the configured one: it takes the real key, and without a price there is no cap, without a cap nothing is begun.
    assert "--max-usd" in ctl(config, "canary", "--provider", "real").stderr
    hidden = ctl(config, "canary", "--provider", "real", "--max-usd", "1")
    assert hidden.returncode == 2 and "LoadCredential=provider:" in hidden.stderr
    config.write_text(config.read_text().replace(CREDENTIAL, 'key_file = "key"'))
    refused = ctl(config, "canary", "--provider", "real", "--max-usd", "1")
    assert refused.returncode != 0 and "money.prices" in refused.stderr
    config.write_text(config.read_text() + f'[money.prices."{MODEL}"]\ninput = 1.0\noutput = 1.0\n')
    real = ctl(config, "canary", "--provider", "real", "--max-usd", "1", "--deadline", ENDS_S, "--json")
    # This provider's model says "Done." at once: a plain conversation is over then, and the canary does not call that a spent budget.
    assert real.returncode == 4, real.stderr + real.stdout
    verdicts = {bird["arm"]: (bird["verdict"], bird["ended_by"]) for bird in printed("canary", real.stdout)["arms"]}
    assert verdicts["plain"] == ("unknown", "agent")


def test_c15_all_five_arms_are_seen_through_the_same_deadline(
    tmp_path: Path, short: Path, docker_host: str, provider: PracticeServer, staged_loopx: StagedTree
) -> None:
    """On the way each passes its gates; those of one that has LoopX once more without a token."""
    config = write_config(short, docker_host, provider.url, [make_task(tmp_path, "t", agent_s=300)], WITH_LOOPX + section())
    accepted = ctl(config, "verify-envs", "--arm", "heartbeat", "--json")
    assert accepted.returncode == 0, accepted.stderr + accepted.stdout
    told = printed("verify-envs", accepted.stdout)
    assert [(cell["outcome"], "loopx quota: " in cell["detail"]) for cell in told["cells"]] == [("ok", True)] and told["requests"] == 0
    done = ctl(config, "canary", "--deadline", ASKS_S, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    birds = {bird["arm"]: (bird["ended_by"], bird["limit"], bird["state"]) for bird in printed("canary", done.stdout)["arms"]}
    arms = ("plain", "goal", "ssh-goal", "codex-cli", "heartbeat")
    assert birds == dict.fromkeys(arms, ("deadline", f"{ASKS_S} s: own", "scored")) and provider.tally("t1").requests == 0


def test_f02_a_rehearsal_that_was_killed_leaves_nothing_to_the_next(
    tmp_path: Path, short: Path, docker_host: str, provider: PracticeServer
) -> None:
    config = write_config(short, docker_host, provider.url, [make_task(tmp_path, "t", agent_s=300)])
    argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(config), "canary", "--deadline", "300"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0)
    try:
        folder = until(lambda: next((short / "state").glob("x/*"), None), "the rehearsal's folder")
        ids = until(lambda: containers(docker_host, folder / "ledger.db"), "a container of the rehearsal")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = ctl(config, "verify-envs", "--arm", "plain")
    assert done.returncode == 0, done.stderr
    assert f"removing what a rehearsal left in {folder}" in done.stderr and not folder.exists()
    assert [words for words in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _read(words)] == []  # its gateway
    found = subprocess.run(["docker", "-H", docker_host, "ps", "-aq", "--no-trunc"], text=True, capture_output=True, check=True)
    assert not set(ids) & {line[:12] for line in found.stdout.split()}


def test_a_rehearsal_that_is_interrupted_ends_what_runs_and_leaves_nothing(
    tmp_path: Path, short: Path, docker_host: str, provider: PracticeServer
) -> None:
    config = write_config(short, docker_host, provider.url, [make_task(tmp_path, "t", agent_s=300)])
    argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(config), "canary", "--deadline", "300"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        folder = until(lambda: next((short / "state").glob("x/*"), None), "the rehearsal's folder")
        ids = until(lambda: containers(docker_host, folder / "ledger.db"), "a container of the rehearsal")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130 and "interrupted: what ran was ended and removed" in said, said
    assert not folder.exists()
    found = subprocess.run(["docker", "-H", docker_host, "ps", "-aq"], text=True, capture_output=True, check=True)
    assert not set(ids) & set(found.stdout.split())
