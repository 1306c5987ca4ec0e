"""The demo campaign: the real daemon and the real gateway as processes of their own, five arms on four sample tasks, on real Docker.

Owns the demo's folder, its configuration and what is printed.  Everything else is what a user has: ``marathond`` runs it, the ledger says
how it goes, ``marathonctl`` shows it.  All arms drive the real codex, three of them with the real LoopX; the model behind the gateway is
the practice provider, which plays scripts (practice.toml): what it costs and scores says nothing about any model.  A first Ctrl-C voids
what runs, tears it down and leaves a ledger that the next run resumes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from urllib.parse import urlencode

from marathond.demo.base_image import BASE_IMAGE
from marathond.demo.docker_http import Docker
from marathond.demo.host import SetupError, need_tools
from marathond.demo.portable_python import portable_python
from marathond.demo.rehearsals import rehearsals

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
TIMEOUT_S = 900.0
PROVIDER_S = 30.0
POLL_S = 0.25

CONFIG = """\
# Written anew by each `make demo`; for a campaign of your own start from config.example.toml.
[daemon]
state_dir = "state"
out_dir = "out"

[campaign]
name = "{name}"
tasks = ["{samples}/*"]
include = ["greet", "visits", "own-address", "csv-totals"]

[admission]
concurrency = 4
# The samples are small: two of them share a core.
cpu_overcommit = 2.0
reserve_memory_mb = 0

[limits]
# The samples give an agent one minute: enough for its steps, not for LoopX's calls on a busy host.
agent_timeout_multiplier = 4.0

[arms.plain]
kind = "codex"
drive = "turn"

[arms.goal]
kind = "codex"
drive = "goal"

[arms.ssh-goal]
kind = "codex"
drive = "goal"
loopx = "codex_app_ssh_goal"

[arms.codex-cli]
kind = "codex"
drive = "goal"
loopx = "codex_cli"

[arms.heartbeat]
kind = "codex"
drive = "wake"
loopx = "generic_cli"

# Said before there is a score; marathonctl report compares these and corrects for all of them.
[comparison]
contrasts = [["goal", "plain"], ["ssh-goal", "goal"], ["codex-cli", "goal"], ["heartbeat", "goal"]]

[loopx]
python = "{python}"

[codex]
model = "gpt-6.2-sol"

# What the agents take for their provider is a rehearsal on this host: marathond practice --script practice.toml
[gateway.routes.main]
base_url = "{provider}"
key_file = "provider.key"

[money.prices."gpt-6.2-sol"]
input = 1.25
cached_input = 0.125
output = 10.0
"""

_ENDS = """
SELECT CAST(substr(trial, 2) AS INTEGER) AS number, trial, arm, task, state, reward FROM v_trial
WHERE campaign = ? AND state IN ('scored', 'voided', 'review') ORDER BY number"""
_COUNTS = """
SELECT count(*), count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state IN ('open', 'claimed'))
FROM v_cell WHERE campaign = ?"""


def say(text: str) -> None:
    """Progress on stderr; stdout is for what came out."""
    print(f"demo: {text}", file=sys.stderr, flush=True)


def run(folder: Path, cache: Path) -> int:
    """Exit status 0: every cell is done and nothing was left behind.

    :param cache: what set-up fetched, from run to run.
    """
    folder, python = folder.absolute(), portable_python(cache)
    (folder / "state").mkdir(parents=True, exist_ok=True)
    ledger = folder / "state" / "ledger.db"
    name = _campaign(ledger)
    config = folder / "marathond.toml"
    key = folder / "provider.key"
    key.touch(mode=0o600)
    key.write_text("a-key-that-only-the-gateway-sees\n")
    signal.signal(signal.SIGINT, _only_once)
    with _provider(folder) as provider:
        config.write_text(CONFIG.format(name=name, samples=HERE / "samples", python=python, provider=provider))
        if not ledger.exists():
            _ctl(config, "init")
        _stage(config, folder)
        return _campaign_runs(folder, config, ledger, name)


def _stage(config: Path, folder: Path) -> None:
    """codex and LoopX, as a person would fetch them; npm is the one tool that may have to be installed for it."""
    need_tools({"npm": "npm"}, folder / "setup.log")
    say("staging codex and LoopX (about 230 MB, once)")
    _ctl(config, "stage")


def _campaign_runs(folder: Path, config: Path, ledger: Path, name: str) -> int:
    engine = os.environ.get("DOCKER_HOST", "the default engine")
    say(f"campaign {name}: five arms x four tasks on {engine}, image {BASE_IMAGE}")
    began = time.monotonic()
    gateway = _process("gateway", "--wait", str(folder / "state" / "gateway"), log=folder / "gateway.log")
    with gateway, _process("--config", str(config), log=folder / "marathond.log") as process:
        try:
            _follow(ledger, name, process, began)
            _ctl(config, "stop", "--reason", "the demo is over", check=False)
            process.wait(timeout=30)
        except KeyboardInterrupt:
            say("interrupted: ending the trials in work; `make demo` goes on from here")
            _ctl(config, "stop", "--now", "--reason", "demo interrupted", check=False)
            process.wait(timeout=60)
            return 130
    return _finish(config, ledger, name, time.monotonic() - began)


def _only_once(_number: int, _frame: FrameType | None) -> None:
    """A terminal's Ctrl-C reaches us twice, by the process group and by the wrapper that runs us: the second must not end the clean-up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _campaign(ledger: Path) -> str:
    """The last campaign if cells of it are left, else the next one."""
    if not ledger.exists():
        return "demo-1"
    with contextlib.closing(_open(ledger)) as conn:
        names = [row[0] for row in conn.execute("SELECT name FROM campaign WHERE name LIKE 'demo-%' ORDER BY campaign_id")]
        if names and conn.execute(_COUNTS, (names[-1],)).fetchone()[2]:
            return str(names[-1])
        return f"demo-{len(names) + 1}"


def _open(ledger: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=5)


def _ctl(config: Path, *words: str, check: bool = True) -> None:
    done = subprocess.run([BIN / "marathonctl", "--config", config, *words], check=False, text=True, capture_output=True)
    if check and done.returncode != 0:
        raise SetupError(f"marathonctl {words[0]}: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")


@contextlib.contextmanager
def _process(*words: str, log: Path, stdout: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """``marathond`` with ``words``, in a process group of its own, so that Ctrl-C reaches it through us only; it ends with the block."""
    with log.open("ab") as out:
        process = subprocess.Popen([BIN / "marathond", *words], stdout=stdout or out, stderr=out, stdin=subprocess.DEVNULL, process_group=0)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def _provider(folder: Path) -> Iterator[str]:
    """The practice provider, on a port that is free; its base URL."""
    script, log = folder / "practice.toml", folder / "practice.log"
    script.write_text(rehearsals(), encoding="utf-8")
    with _process("practice", "--script", str(script), log=log, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], PROVIDER_S)
        words = process.stdout.readline().decode().split() if readable else []
        if not words or not words[-1].startswith("http"):
            raise SetupError(f"the practice provider did not begin to listen; see {log}")
        yield words[-1]


def _follow(ledger: Path, name: str, process: subprocess.Popen[bytes], began: float) -> None:
    """Print each ending as it comes, until no cell is open any more."""
    seen: set[int] = set()
    while True:
        if process.poll() is not None:
            raise SetupError(f"marathond ended with {process.returncode}; see demo/marathond.log")
        if time.monotonic() - began > TIMEOUT_S:
            raise SetupError(f"the demo did not end within {TIMEOUT_S:.0f} s; see `marathonctl status` and demo/marathond.log")
        with contextlib.closing(_open(ledger)) as conn:
            rows = conn.execute(_ENDS, (name,)).fetchall()
            total, _, left = conn.execute(_COUNTS, (name,)).fetchone()
            exported = conn.execute("SELECT count(*) FROM artifact_export").fetchone()[0]
            trials = conn.execute("SELECT count(*) FROM trial").fetchone()[0]
            claims = conn.execute("SELECT count(*) FROM claim WHERE released_at_ms IS NULL").fetchone()[0]
        for number, trial, arm, task, state, reward in rows:
            if number in seen:
                continue
            seen.add(number)
            word = f"reward {reward:g}" if state == "scored" else state
            say(f"{len(seen):2d}/{total} {trial} {arm:<9} {task:<12} {word}")
        if total and not left and not claims and exported == trials:
            return
        time.sleep(POLL_S)


def _finish(config: Path, ledger: Path, name: str, seconds: float) -> int:
    """What came out, in a few lines on stdout."""
    with contextlib.closing(_open(ledger)) as conn:
        ledger_id = conn.execute("SELECT ledger_id FROM ledger_identity").fetchone()[0]
        scored, voided, review = conn.execute(
            """SELECT count(*) FILTER (WHERE state = 'scored'), count(*) FILTER (WHERE state = 'voided'),
               count(*) FILTER (WHERE state = 'review') FROM v_trial WHERE campaign = ?""",
            (name,),
        ).fetchone()
        total, done, _ = conn.execute(_COUNTS, (name,)).fetchone()
        last = conn.execute("SELECT max(trial) FROM v_trial WHERE campaign = ?", (name,)).fetchone()[0]
        arms = conn.execute(
            """SELECT arm, done, reward, partial,
                   (SELECT sum(input_tokens + output_tokens) FROM v_usage AS u WHERE u.campaign = a.campaign AND u.arm = a.arm),
                   (SELECT sum(cost_usd) FROM v_usage AS u WHERE u.campaign = a.campaign AND u.arm = a.arm)
               FROM v_arm AS a WHERE campaign = ? ORDER BY position""",
            (name,),
        ).fetchall()
    left = _left_behind(ledger_id)
    print(f"\n{'arm':<10} {'done':>4}  {'reward':>6}  {'partial':>7}  {'tokens':>9}  {'cost':>6}")
    for arm, cells, reward, partial, tokens, cost in arms:
        spent = f"{tokens or 0:>9,}  {'-' if cost is None else f'${cost:.2f}':>6}"
        print(f"{arm:<10} {cells:>4}  {_number(reward):>6}  {_number(partial):>7}  {spent}")
    print("real codex, real LoopX, scripted answers: a rehearsal, no measure of any model or arm")
    review_words = f", {review} in review" if review else ""
    print(f"\nfive arms x 4 tasks: {scored} scored, {voided} voided{review_words}, {seconds:.0f} s, {left or 'nothing left behind'}")
    shown = os.path.relpath(config)
    html = Path(shown).with_name("report.html")
    print(f'next: `.venv/bin/marathonctl --config {shown} report --html {html}` · `… show {last}` · `… sql "select * from v_arm"`')
    print("your own campaign: README, section 2")
    return 0 if done == total and not left else 1


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _left_behind(ledger_id: str) -> str:
    """Containers and networks of this ledger that still exist, in words; empty: none."""
    docker = Docker(os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock")
    query = urlencode({"all": "1", "filters": json.dumps({"label": [f"marathond.ledger={ledger_id}"]})})
    found = [docker.call("GET", f"/{kind}?{query}") for kind in ("containers/json", "networks")]
    if any(status != 200 for status, _ in found):
        return "unknown: the engine did not list containers and networks"
    containers, networks = (len(rows) for _, rows in found)
    return f"left behind: {containers} containers, {networks} networks" if containers or networks else ""
