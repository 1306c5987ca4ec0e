"""``marathonctl report`` over a real ledger: its outputs, its refusals, its exit codes, and that the same ledger gives the same bytes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from marathond.cli import ctl
from marathond.cli import report as command
from marathond.service.exits import CallFailed
from tests.support.published import printed
from tests.support.report_ledger import CAMPAIGN, ReportLedger, report_ledger

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def scratch() -> Iterator[ReportLedger]:
    with report_ledger(tasks=3, arms=("plain", "goal", "heartbeat"), replicates=2) as made:
        yield made


@pytest.fixture
def run(scratch: ReportLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """marathonctl in an empty folder, on the scratch ledger: exit code, stdout, stderr."""
    for name in [name for name in os.environ if name.startswith("MARATHOND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(scratch.folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> tuple[int, str, str]:
        code = ctl.run(argv)
        sys.stdout.flush()
        return (code, *capfd.readouterr())

    return call


@pytest.fixture
def stopped(scratch: ReportLedger) -> Iterator[None]:
    number = scratch.finding("infra_disparity", "stop_loss", "goal", "planted")
    scratch.commit()
    yield
    scratch.c.execute("UPDATE finding SET closed_at_ms = ? WHERE finding_id = ?", (scratch.now_ms, number))
    scratch.commit()


def test_text_by_default_and_one_page(run: Run) -> None:
    code, out, err = run("report")
    assert code == 0 and err == "" and out.splitlines()[0] == CAMPAIGN
    assert "goal - plain" in out and "# Time, tokens, money" in out
    code, page, err = run("report", "--page")
    assert code == 0 and len(page.splitlines()) < 60 < len(out.splitlines())


def test_each_output_in_a_file_and_several_at_once(run: Run, tmp_path: Path) -> None:
    code, out, err = run("report", "--html", "r.html", "--json", "r.json", "--csv", "r.csv")
    assert code == 0 and out == ""
    assert [line.split()[:2] for line in err.splitlines()] == [["wrote", "r.html"], ["wrote", "r.json"], ["wrote", "r.csv"]]
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert printed("report", (tmp_path / "r.json").read_text())["campaigns"][0]["campaign"] == CAMPAIGN
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 1 + 3 * 3 * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.html", "r.json"]


@pytest.mark.parametrize("argv", [("--json",), ("--json", "-"), ("--json", "--campaign", CAMPAIGN), ("--json=-",)])
def test_json_without_a_file_goes_to_stdout(run: Run, argv: tuple[str, ...]) -> None:
    code, out, err = run("report", *argv)
    assert code == 0 and err == "" and printed("report", out)["format"] == 1


def test_csv_without_a_file_and_what_its_columns_mean(run: Run) -> None:
    code, out, _ = run("report", "--csv")
    assert code == 0 and out.startswith("campaign,task,arm,")
    code, told, _ = run("report", "--columns")
    assert code == 0 and [line.split()[0] for line in told.splitlines()[1:]] == out.splitlines()[0].split(",")


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("--html", "-", "--json"), 2, "only one output can go to stdout"),
        (("--html", "x", "--csv", "./x"), 2, "two outputs name the same file"),
        (("--page", "--json"), 2, "--page is text or --html"),
        (("--html", ""), 2, "needs a file name"),
        (("--campaign", "nowhere"), 2, f"no campaign nowhere; there are: {CAMPAIGN}"),
        (("--against", "nowhere"), 2, f"no campaign nowhere; there are: {CAMPAIGN}"),
        (("--against", CAMPAIGN), 2, "cannot be compared with itself"),
        (("--pair", "a=b"), 2, "--pair needs --against"),
        (("--against", CAMPAIGN, "--pair", "a"), 2, "must be two arms, such as plain=goal"),
        (("--html", "no/such/r.html"), 1, "no/such/r.html: no such file or directory"),
        (("--html", "."), 2, "is a folder; name the file to make"),
    ],
)
def test_what_cannot_be_done_is_one_line(run: Run, tmp_path: Path, argv: tuple[str, ...], code: int, words: str) -> None:
    got, out, err = run("report", *argv)
    assert got == code and out == "" and len(err.splitlines()) == 1 and words in err
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_without_a_campaign_and_none_at_all(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(tmp_path / "state"))
    code, _, err = run("report")
    assert code == 1 and "ledger" in err and len(err.splitlines()) == 1
    assert run("init")[0] == 0
    code, out, err = run("report")
    assert code == 2 and out == "" and "no campaign was ever submitted or imported" in err


def test_two_campaigns_of_one_ledger_and_a_pair_of_differently_named_arms(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with report_ledger(tasks=2, arms=("plain", "goal"), replicates=2) as two:
        later = two.submit("later", 2, now_ms=two.now_ms)
        two.campaign_id = later  # what follows is of the second campaign
        for task in ("task-01", "task-02"):
            two.trial(task=task, arm="plain", replicate=1, reward=1.0)
        two.commit()
        monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(two.folder))
        code, out, err = run("report", "--campaign", CAMPAIGN, "--against", "later")
        assert code == 0 and err == "" and out.splitlines()[0] == f"{CAMPAIGN} against later"
        assert f"{CAMPAIGN}/plain - later/plain" in out and "# What was compared: later" in out
        code, out, _ = run("report", "--campaign", CAMPAIGN, "--against", "later", "--pair", "goal=plain", "--page")
        assert code == 0 and f"{CAMPAIGN}/goal - later/plain" in out and f"{CAMPAIGN}/plain - later/plain" not in out
        code, _, err = run("report", "--campaign", CAMPAIGN, "--against", "later", "--pair", "nobody=plain")
        assert code == 2 and f"no arm nobody in campaign {CAMPAIGN}; there are: plain, goal" in err
        assert run("report")[1].splitlines()[0] == "later"  # the newest


@pytest.mark.usefixtures("stopped")
def test_an_open_stop_loss_is_exit_1_with_one_line_and_the_rest_is_told(run: Run, tmp_path: Path) -> None:
    code, out, err = run("report")
    assert code == 1 and len(err.splitlines()) == 1
    assert "infra_disparity (goal)" in err and "marathonctl findings" in err and "--anyway" in err
    assert "# Disclosures" in out and "# Comparison" not in out
    code, out, err = run("report", "--html", "r.html", "--csv", "r.csv", "--json", "r.json")
    assert code == 1 and "not ranked" in (tmp_path / "r.html").read_text()
    assert printed("report", (tmp_path / "r.json").read_text())["comparison"] is None
    code, out, err = run("report", "--anyway")
    assert code == 0 and "PRINTED ANYWAY" in err and "PRINTED ANYWAY" in out.split("# What")[0] and "# Comparison" in out


@pytest.mark.usefixtures("stopped")
def test_what_is_withheld_is_not_even_computed(run: Run) -> None:
    script = "import sys; from marathond.cli.ctl import run; code = run(['report']); sys.exit('numpy' in sys.modules or code != 1)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0


# ── files ──


def test_e07_an_older_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "r.html"
    target.write_text("old")
    target.chmod(0o600)
    before = target.stat().st_ino
    command.write(str(target), "new")
    assert target.read_text() == "new" and target.stat().st_ino != before
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_e07_a_write_that_fails_leaves_the_older_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.html"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(command.os, "fsync", full)
    with pytest.raises(CallFailed, match=r"r\.html: no space left on device"):
        command.write(str(target), "new")
    assert target.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["r.html"]


def test_a_new_file_has_the_mode_of_the_umask_and_a_link_stays_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = tmp_path / "latest.html"
    link.symlink_to(tmp_path / "r.html")
    before = os.umask(0o027)
    try:
        command.write(str(link), "new")
    finally:
        os.umask(before)
    assert link.is_symlink() and (tmp_path / "r.html").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "r.html").stat().st_mode) == 0o640


def test_a_device_is_written_not_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    command.write(os.devnull, "x" * 100)
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


# ── the same ledger, the same bytes ──

ALL = """
import sys
from marathond.cli.ctl import run
codes = [run(["report", "--html", "r.html", "--json", "r.json", "--csv", "r.csv"]), run(["report", "--page", "--html", "p.html"])]
for name, argv in (("r.txt", ["report"]), ("p.txt", ["report", "--page"])):
    with open(name, "w", encoding="utf-8") as sys.stdout:
        codes.append(run(argv))
sys.exit(max(codes))
"""


def test_the_same_ledger_gives_the_same_bytes_wherever_and_whenever(scratch: ReportLedger, tmp_path: Path) -> None:
    """Another place, time zone, locale, hash seed, terminal, user's name."""
    surroundings: tuple[dict[str, str], ...] = (
        {"TZ": "Asia/Tokyo", "LANG": "C", "LC_ALL": "C", "PYTHONHASHSEED": "1", "COLUMNS": "60", "USER": "ana", "PYTHONUTF8": "0"},
        {"TZ": "America/Lima", "LANG": "de_DE.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "77", "NO_COLOR": "1", "COLUMNS": "300"},
    )
    made = []
    for number, more in enumerate(surroundings):
        folder = tmp_path / str(number)
        state = tmp_path / f"state-{number}"
        folder.mkdir()
        state.mkdir()
        scratch.commit()
        scratch.c.execute("COMMIT")
        scratch.c.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        scratch.c.execute("BEGIN IMMEDIATE")
        shutil.copy(scratch.path, state / "ledger.db")  # the file alone
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MARATHOND_DAEMON__STATE_DIR": str(state), **more}
        environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run([sys.executable, "-c", ALL], cwd=folder, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert sorted(made[0]) == ["p.html", "p.txt", "r.csv", "r.html", "r.json", "r.txt"] and all(made[0].values())
    assert [name for name in made[0] if made[0][name] != made[1][name]] == []


def test_contrasts_chosen_for_one_report_and_the_report_says_so(run: Run) -> None:
    code, out, err = run("report", "--contrast", "heartbeat, goal", "--json")
    found = printed("report", out)
    assert (code, err) == (0, "") and found["comparison"]["chosen"] is True
    assert [(each["a"], each["b"], each["declared_at_ms"]) for each in found["comparison"]["contrasts"]] == [("heartbeat", "goal", None)]
    for form in ((), ("--page",), ("--html", "-")):
        code, out, _ = run("report", "--contrast", "heartbeat,goal", *form)
        assert code == 0 and "chosen when this report was made" in out and "heartbeat - goal" in out
    code, out, err = run("report", "--contrast", "heartbeat,gaol")
    assert (code, out, len(err.splitlines())) == (2, "", 1) and "plain, goal, heartbeat" in err
    code, _, err = run("report", "--contrast", "goal,plain", "--against", CAMPAIGN)
    assert code == 2 and "--pair" in err
