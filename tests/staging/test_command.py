"""``marathonctl stage`` as people run it: processes, exit codes, what is on stdout and stderr."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from marathond.cli import ctl
from marathond.cli.refusals import exit_code_of
from marathond.core.errors import StageError
from tests.support.published import printed
from tests.support.registry import Registry, integrity, make_tree

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0


@pytest.fixture
def config(tmp_path: Path, tarball: Path) -> Path:
    return write_config(tmp_path, f'integrity = "{integrity(tarball)}"')


ROUTE = '[gateway.routes.main]\nbase_url = "https://api.example.org/v1"\nkey_file = "/k"\n'
ARMS = f'[arms.nop]\nkind = "nop"\n[arms.plain]\nkind = "codex"\ndrive = "turn"\n{ROUTE}'


def write_config(tmp_path: Path, codex: str, chosen: str = "") -> Path:
    """:param chosen: ``campaign.arms``; empty: both."""
    path = tmp_path / "config.toml"
    campaign = f'[campaign]\nname = "first"\ntasks = ["t"]\n{chosen}\n'
    path.write_text(f'[daemon]\nstate_dir = "state"\n[codex]\n{codex}\nmodel = "m"\n{campaign}{ARMS}')
    return path


def argv(config: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "marathond.cli.ctl", "--config", str(config), "stage", *options]


@dataclass(frozen=True, slots=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """In this process: the interpreter's start is not what is tried here."""

    def run(config: Path, *options: str) -> Done:
        code = ctl.run(["--config", str(config), "stage", *options])
        return Done(code, *capsys.readouterr())

    return run


def the_tree(config: Path) -> Path:
    (found,) = (config.parent / "state" / "staged").glob("codex-*/tree")
    return found


def test_stage_verify_and_again(config: Path, registry: Registry, run: Run) -> None:
    absent = run(config, "--verify")
    assert (absent.returncode, absent.stdout) == (1, "")
    staged = config.parent / "state" / "staged"
    assert absent.stderr == f"marathonctl: codex 0.171.0 is not staged in {staged}; to stage it: marathonctl stage\n"

    first = run(config)
    assert first.returncode == 0, first.stderr
    name = the_tree(config).parent.name
    assert first.stdout.splitlines()[0] == f"{name} staged: 5 files, 0.1 MB"
    assert "  from      npm @openai/codex@0.171.0-linux-x64" in first.stdout
    assert "  dropped   README.md, package.json" in first.stdout
    assert "fetching @openai/codex@0.171.0-linux-x64" in first.stderr
    assert "unpacking @openai/codex@0.171.0-linux-x64 (0.1 MB)" in first.stderr

    again = run(config, "--json")
    assert again.returncode == 0, again.stderr
    (told,) = printed("stage", again.stdout)
    assert (told["package_id"], told["state"], told["files"]) == (name, "was staged already", 5)
    assert told["root"] == str(the_tree(config))

    whole = run(config, "--verify")
    assert (whole.returncode, whole.stdout.splitlines()[0]) == (0, f"{name} verified: 5 files, 0.1 MB")

    (the_tree(config) / "codex-path" / "rg").write_text("something else")
    altered = run(config, "--verify")
    assert altered.returncode == 1
    assert f"{the_tree(config)}/codex-path/rg has 14 bytes" in altered.stderr
    assert altered.stderr.endswith("; to stage it: marathonctl stage\n")
    assert registry.tarballs == 1, "looking fetches nothing"

    healed = run(config)
    assert (healed.returncode, healed.stdout.splitlines()[0]) == (0, first.stdout.splitlines()[0])
    assert "codex-path/rg has 14 bytes" in healed.stderr
    assert run(config, "--verify").returncode == 0


def test_what_no_arm_needs_is_not_fetched(tmp_path: Path, tarball: Path, registry: Registry, run: Run) -> None:
    """codex is pinned, and an arm of it is there, but the campaign leaves it out."""
    config = write_config(tmp_path, f'integrity = "{integrity(tarball)}"', 'arms = ["nop"]')
    left = "left out: codex, loopx: no arm of campaign first needs them\n"
    for options in ((), ("--verify",)):
        assert run(config, *options) == Done(0, "", left)
    as_json = run(config, "--json")
    assert (as_json.returncode, printed("stage", as_json.stdout), as_json.stderr) == (0, [], left)
    assert registry.tarballs == 0 and not (tmp_path / "state").exists()

    write_config(tmp_path, f'integrity = "{integrity(tarball)}"')
    both = run(config)
    assert (both.returncode, registry.tarballs) == (0, 1), both.stderr
    assert both.stderr.endswith("left out: loopx: no arm of campaign first needs it\n")


def test_two_at_once_fetch_once(config: Path, registry: Registry) -> None:
    """Both succeed, the one that came second waits and finds it done."""
    registry.gate.clear()
    outputs = [config.parent / f"err{number}" for number in range(2)]
    both = []
    for output in outputs:
        with output.open("wb") as stream:
            both.append(subprocess.Popen(argv(config, "--json"), cwd=ROOT, stdout=subprocess.PIPE, stderr=stream, text=True))
    try:
        end = time.monotonic() + PATIENCE_S
        while not (registry.halfway.is_set() and any("waiting for another staging" in output.read_text() for output in outputs)):
            assert time.monotonic() < end, [output.read_text() for output in outputs]
            assert all(process.poll() is None for process in both), [output.read_text() for output in outputs]
            time.sleep(0.05)
    finally:
        registry.gate.set()
        answers = [process.communicate(timeout=PATIENCE_S)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], [output.read_text() for output in outputs]
    told = [printed("stage", answer)[0] for answer in answers]
    assert told[0]["package_id"] == told[1]["package_id"]
    assert sorted(one["state"] for one in told) == ["staged", "was staged already"]
    assert registry.tarballs == 1
    assert {path.name for path in (config.parent / "state" / "staged").iterdir()} == {"lock", told[0]["package_id"]}


def test_npm_is_missing(config: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run(config)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "marathonctl: npm is not on PATH, it fetches @openai/codex@0.171.0-linux-x64: "
        "install it (Debian: apt-get install npm), or set codex.folder to a local tree\n"
    )


def test_an_old_version_is_an_error_of_the_configuration(tmp_path: Path, run: Run) -> None:
    done = run(write_config(tmp_path, 'version = "0.170.0"'))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith('config.toml:4: codex.version = "0.170.0": codex must be at least 0.171.0\n')
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "state").exists()


def test_a_folder_beside_the_configuration(tmp_path: Path, run: Run) -> None:
    make_tree(tmp_path / "codex")
    done = run(write_config(tmp_path, 'folder = "codex"'))
    assert done.returncode == 0, done.stderr
    assert f"  from      folder {tmp_path / 'codex'}" in done.stdout
    assert "dropped" not in done.stdout


def test_a_terminal_is_shown_bars_with_bytes(config: Path, registry: Registry) -> None:
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    process = subprocess.Popen(argv(config), cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # EIO: nobody has the other end any more
            break
        if not chunk:
            break
        shown += chunk
    os.close(ours)
    told = process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0, shown
    assert told.startswith("codex-0.171.0-")
    for words in ("fetching", "checking the hash of", "unpacking"):
        assert f"{words} @openai/codex@0.171.0-linux-x64" in shown.decode()
    assert "kB" in shown.decode()


def test_busy_is_an_exit_code_of_its_own() -> None:
    assert exit_code_of(StageError("busy", "another one")) == 75
    assert exit_code_of(StageError("npm", "missing")) == 1
