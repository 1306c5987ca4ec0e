"""tail, history, diff, capacity as they are typed; tail -f beside writers; tab completion in real shells."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.cli import complete
from marathond.cli.explain import known
from marathond.cli.schema_forms import names
from marathond.cli.tab import _mended
from marathond.ledger.verbs import admission, findings, operator, parks, runs, settings
from tests.support import ledgers as have
from tests.support.cli_rig import NASTY, Rig, living_rig, mixed, now_ms
from tests.support.shells import KILL_LINE, KINDS, shell

MINUTE_S = 60


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        yield rig


def test_the_commands_are_there_and_say_what_is_wrong_in_a_line(rig: Rig) -> None:
    mixed(rig)
    for argv in (["tail"], ["history"], ["history", "t0001"], ["capacity"]):
        answer = rig.run(*argv)
        assert answer.code in (0, 4) and answer.err == "" and answer.out.count("\n") > 2, (argv, answer)
    for argv, expected in (
        (["tail", "--arm", "plane"], "no arm plane; there are: goal, plain"),
        (["tail", "--task", "z"], "no task z; there are: rust, zstd"),
        (["tail", "--trial", "t99"], "no trial t0099 in this ledger (last is t0003)"),
        (["tail", "--trial", "first"], "'first': must be a trial such as t0871"),
        (["history", "nobody"], "history: no trial, cell, block, task or arm nobody in this ledger"),
        (["history", "--campaign", "z"], "no campaign z; there are: x"),
        (["diff", "x", "x"], "diff: x twice; name two campaigns"),
        (["diff", "x", "z"], "no campaign z; there are: x"),
        (["capacity", "--campaign", "z"], "no campaign z; there are: x"),
    ):
        answer = rig.run(*argv)
        assert (answer.out, answer.err) == ("", f"marathonctl: {expected}\n") and answer.code in (1, 2), argv
    for name in ("tail", "history", "diff", "capacity"):
        assert "Usage: marathonctl" in rig.ask(name, "--help")


def test_nothing_that_is_shown_steers_a_terminal(rig: Rig) -> None:
    with rig.sql() as c:
        findings.raise_finding(c, code="oom", severity="info", subject=NASTY, detail=NASTY, campaign_id=None, now_ms=now_ms())
        admission.open_stop(c, "pause", detail=NASTY, author=NASTY, until_ms=None, now_ms=now_ms())
    for argv in (["tail"], ["history"], ["capacity"], ["tail", "--json"]):
        out = rig.run(*argv).out
        assert "evil" in out and "\x1b" not in out and "\u202e" not in out and "\x9b" not in out, argv


def test_history_by_an_author_and_of_the_newest(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        operator.void_trials(c, [1], code="operator", reason="a reason", author="ben", now_ms=now_ms())
        settings.set_value(c, "admission.concurrency", old=4, new=2, author="ana", reason="quieter", now_ms=now_ms())
    by_ben = rig.ask("history", "--by", "ben").splitlines()
    assert len(by_ben) == 1 and "t0001  voided operator by ben: a reason" in by_ben[0]
    newest = rig.ask("history", "-n", "1").splitlines()
    assert newest[0].startswith("… ") and "admission.concurrency 4 -> 2 by ana: quieter" in newest[1] and len(newest) == 2
    assert [json.loads(line)["author"] for line in rig.ask("history", "--json", "-n", "2").splitlines()] == ["ben", "ana"]


# ── followed ──


class Follower:
    """``marathonctl tail -f --json`` as a program of its own."""

    def __init__(self, rig: Rig, *argv: str) -> None:
        command = [sys.executable, "-m", "marathond.cli.ctl", "tail", "-f", "--json", *argv]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        self.seen: list[dict[str, Any]] = []

    def until(self, key: str) -> None:
        """Read lines until the one of that key."""
        assert self.process.stdout is not None
        while not self.seen or self.seen[-1]["key"] != key:
            line = self.process.stdout.readline()
            assert line, (key, self.process.stderr and self.process.stderr.read())
            self.seen.append(json.loads(line))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_tail_follows_over_a_restart_of_the_daemon_without_a_gap_or_a_double(rig: Rig) -> None:
    before = {json.loads(line)["key"] for line in rig.ask("tail", "--json", "-n", "1000").splitlines()}
    with rig.sql() as c:
        follower = Follower(rig, "-n", "1")
        try:
            findings.raise_finding(c, code="oom", severity="info", subject="/", detail="", campaign_id=None, now_ms=now_ms())
            follower.until("finding:1:opened")
            for number, cell in enumerate((("zstd", "plain"), ("zstd", "goal"), ("rust", "plain")), start=1):
                have.let_go(c, have.bring_to(c, have.cell(c, *cell), "scored", now_ms=now_ms()))
                runs.end_run(c, reason=f"restart {number}", now_ms=now_ms())
                rig.begin_life(c)
                settings.set_value(c, "admission.concurrency", old=1, new=number, author="ana", reason="", now_ms=now_ms())
                if number == 2:  # opened and closed between two looks
                    findings.close_finding(c, code="oom", subject="/", now_ms=now_ms())
                    findings.raise_finding(c, code="oom", severity="info", subject="/", detail="", campaign_id=None, now_ms=now_ms())
                    findings.close_finding(c, code="oom", subject="/", now_ms=now_ms())
            parks.park_cell(c, have.cell(c, "rust", "goal"), code="host_too_small", detail="", author="marathond", now_ms=now_ms())
            whole = [json.loads(line)["key"] for line in rig.ask("tail", "--json", "-n", "1000").splitlines()]
            assert whole[-2] == "park:1:parked" and whole[-1].startswith("campaign:1:ended:")
            follower.until(whole[-1])
            keys = [line["key"] for line in follower.seen]
            assert len(keys) == len(set(keys)) and set(keys) - before == set(whole) - before
            assert {"life:5:started", "life:2:stopped", "finding:2:opened", "finding:2:closed", "setting:3"} <= set(keys)
            assert [key for key in keys if key.startswith("event:")] == [key for key in whole if key.startswith("event:")]
        finally:
            follower.close()


def test_the_end_of_a_campaign_is_a_line_of_its_own_each_time_it_ends(rig: Rig) -> None:
    with rig.sql() as c:
        follower = Follower(rig, "-n", "1")
        try:
            for cell in (("zstd", "plain"), ("rust", "plain")):
                have.let_go(c, have.bring_to(c, have.cell(c, *cell), "scored", now_ms=now_ms()))
            parks.park_cell(c, have.cell(c, "zstd", "goal"), code="host_too_small", detail="", author="marathond", now_ms=now_ms())
            assert "x ended" not in rig.ask("tail"), "a cell is open"
            last = have.bring_to(c, have.cell(c, "rust", "goal"), "scored", now_ms=now_ms())
            assert "x ended" not in rig.ask("tail"), "it is not torn down"
            have.let_go(c, last, now_ms=now_ms())
            newest = rig.ask("tail", "-n", "1")
            assert newest.split("  ", 1)[1] == "campaign  x ended: 3 of 4 cells scored, 1 parked\n"
            first = json.loads(rig.ask("tail", "--json", "-n", "1"))
            assert (first["kind"], first["what"], first["campaign"], first["cells"]) == ("campaign", "ended", "x", 4)
            assert first["detail"] == {"done": 3, "parked": 1, "review": 0}
            follower.until(first["key"])

            # What goes on at rest is told behind it, and ends nothing again; nor is the end told of a part.
            settings.set_value(c, "admission.concurrency", old=1, new=2, author="ana", reason="", now_ms=now_ms())
            follower.until("setting:1")
            assert [json.loads(line)["key"] for line in rig.ask("tail", "--json", "-n", "2").splitlines()] == [first["key"], "setting:1"]
            assert " ended: 3 of 4" in rig.ask("tail", "--campaign", "x") and " ended: 3 of 4" not in rig.ask("tail", "--task", "rust")

            operator.void_trials(c, [last.trial_id], code="provider", reason="outage", author="ana", now_ms=now_ms())
            settings.set_value(c, "admission.concurrency", old=2, new=3, author="ana", reason="", now_ms=now_ms())
            follower.until("setting:2")
            assert " ended: " not in rig.ask("tail")
            have.let_go(c, have.bring_to(c, have.cell(c, "rust", "goal"), "scored", now_ms=now_ms()), now_ms=now_ms())
            second = json.loads(rig.ask("tail", "--json", "-n", "1"))
            follower.until(second["key"])
            assert [line["key"] for line in follower.seen if line["what"] == "ended" and line["kind"] == "campaign"] == [
                first["key"],
                second["key"],
            ]
        finally:
            follower.close()


def test_tail_that_follows_ends_when_another_ledger_has_its_place(rig: Rig) -> None:
    follower = Follower(rig, "-n", "1")  # the line that is waited for is the newest, whether the program looks before or after it
    try:
        with rig.sql() as c:
            runs.end_run(c, reason="SIGTERM", now_ms=now_ms())
            follower.until("life:2:stopped")
        with rig.sql() as c:
            c.execute("DROP TRIGGER IF EXISTS ledger_identity_is_never_deleted")
            c.execute("UPDATE ledger_identity SET ledger_id = 'ffffffffffff'")
        _, err = follower.process.communicate(timeout=5 * MINUTE_S)
        assert follower.process.returncode != 0 and "another one has its place by now (ffffffffffff" in err and err.count("\n") <= 2
    finally:
        follower.close()


# ── tab completion ──


@pytest.mark.parametrize("name", sorted(KINDS))
def test_in_a_real_shell_a_tab_completes_values(rig: Rig, name: str) -> None:
    mixed(rig)
    with shell(name, rig.state_dir) as there:
        for typed, completed in (
            ("marathonctl histo\t", "marathonctl history "),  # the first tab of all
            ("marathonctl review \t", "review t0002 "),
            ("marathonctl tail --arm g\t", "--arm goal "),
            ("marathonctl tail --arm=g\t", "--arm=goal "),
            ("marathonctl set concurr\t", "set concurrency="),
            ("marathonctl set order=arm\t", "set order=arm-major "),
            ("marathonctl explain host_too_s\t", "explain host_too_small "),
            ("marathonctl explain pass\t", "explain passes_exhausted "),
            ("marathonctl explain NETP\t", "explain NETPOOL "),
            ("marathonctl explain own_s\t", "explain own_surroundings "),
            ("marathonctl schema verify\t", "schema verify-envs "),
            ("marathonctl schema ledger ch\t", "schema ledger check "),
            ("marathonctl report --html bi\t", "--html bin/"),
            ("marathonctl report --contrast go\t", "--contrast goal,plain "),
        ):
            there.type(f"{KILL_LINE}{typed}")
            there.wait_for(completed)
        there.type(f"{KILL_LINE}marathonctl show t\t")
        there.wait_for("show t000")
        there.type(there.kind.list_keys)
        there.wait_for("t0001", "t0002", "t0003")


def completed(rig: Rig, shell: str, *words: str) -> subprocess.CompletedProcess[str]:
    """As the shell's function asks, by typer's protocol."""
    asked = {"_MARATHONCTL_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        asked |= {"COMP_WORDS": "\n".join(["marathonctl", *words]), "COMP_CWORD": str(len(words))}
    else:
        asked |= {"_TYPER_COMPLETE_ARGS": " ".join(["marathonctl", *words]), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    argv = [sys.executable, "-m", "marathond.cli.ctl"]
    return subprocess.run(argv, env={**os.environ, **asked}, capture_output=True, text=True, timeout=4 * MINUTE_S, check=False)


def test_other_shells_are_told_what_a_value_is(rig: Rig) -> None:
    mixed(rig)
    assert completed(rig, "fish", "show", "t000").stdout.splitlines() == [
        "t0003\trust plain running",
        "t0002\tzstd goal review",
        "t0001\tzstd plain scored",
    ]
    assert '"t0003":"rust plain running"' in completed(rig, "zsh", "show", "t000").stdout
    assert completed(rig, "fish", "show", "nobody").stdout == "" and completed(rig, "zsh", "show", "nobody").stdout == "_files\n"


def test_other_shells_are_told_the_whole_word_of_an_option_with_its_value(rig: Rig) -> None:
    """They compare whole words, and typer answers with the value alone."""
    mixed(rig)
    assert completed(rig, "fish", "tail", "--arm=").stdout.splitlines() == ["--arm=plain\tcommand", "--arm=goal\tcommand"]
    told = completed(rig, "zsh", "tail", "--arm=").stdout
    assert '"--arm=plain":"command"\n"--arm=goal":"command"' in told and told.startswith("_arguments '*: :((")
    assert completed(rig, "fish", "tail", "--arm", "g").stdout == "goal\tcommand\n"
    assert completed(rig, "zsh", "report", "--html=x").stdout == "_files\n"


def test_codes_are_offered_as_explain_knows_them(rig: Rig) -> None:
    """Of every kind, by their beginning; and what is offered is explained."""
    offered = [line.split("\t") for line in completed(rig, "fish", "explain", "h").stdout.splitlines()]
    every = {each.code: each.means for each in known() if each.code.startswith("h")}
    assert {code for code, _ in offered} == set(every) and {"host_too_small", "host_unknown"} <= set(every)
    for code, words in offered:
        said, means = (" ".join(re.findall(r"\w+", text)) for text in (words, every[code]))
        assert said and means.startswith(said), (code, words)
        assert rig.ask("explain", code).count(code) >= 1
    assert values("codes", "no such") == [] and len(values("codes")) == len({each.code for each in known()})


def test_names_of_schemas_are_offered_word_by_word(rig: Rig) -> None:
    """What is offered one after the other makes a name, and each name can be made."""
    assert completed(rig, "fish", "schema", "arms", "").stdout.splitlines()[0].startswith("show\twhat marathonctl arms show prints")
    assert {line.split("\t")[0] for line in completed(rig, "fish", "schema", "led").stdout.splitlines()} == {"ledger"}
    assert values("schemas", "c", command=["ledger"]) == ["check"] and values("schemas", "", command=["status"]) == []
    assert {"config", "error"} <= set(values("schemas"))
    made = {(first, *rest) for first in values("schemas") for rest in [[], *([word] for word in values("schemas", command=[first]))]}
    assert {" ".join(words) for words in made} >= set(names())
    for words in made:
        assert " ".join(words) in names() or any(name.startswith(f"{' '.join(words)} ") for name in names()), words


def test_the_first_tab_of_zsh_is_answered(rig: Rig) -> None:
    """zsh reads an installed completion at that moment, as a function's body.  This one needs no zsh."""
    argv = [sys.executable, "-m", "marathond.cli.ctl", "--show-completion", "zsh"]
    environ = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    told = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=4 * MINUTE_S, check=True).stdout
    body = told.partition("compdef _marathonctl_completion marathonctl\n")[2].split()
    assert body == ["if", "[[", "$zsh_eval_context[-1]", "==", "loadautofunc", "]];", "then", "_marathonctl_completion", '"$@"', "fi"]


class Ctx:
    """Of typer's context what a completer looks at."""

    def __init__(self, **params: Any) -> None:
        self.params = params

    def find_root(self) -> Ctx:
        return self


def values(name: str, incomplete: str = "", **params: Any) -> list[str]:
    return [value for value, _ in getattr(complete, name)(Ctx(**params), incomplete)]


def test_pairs_of_arms_are_offered(rig: Rig) -> None:
    assert values("pairs") == ["plain,goal", "goal,plain"] and values("pairs", "go") == ["goal,plain"] and values("pairs", "x") == []
    assert values("pairs", "goal,") == ["goal,plain"] and values("pairs", "goal,pl") == ["goal,plain"]
    assert values("pairs", "goal,g") == [], "no arm against itself"


def test_what_is_offered(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        operator.void_trials(c, [1], code="operator", reason="why", author="ben", now_ms=now_ms())
        parks.park_cell(c, have.cell(c, "rust", "goal"), code="host_too_small", detail="", author="marathond", now_ms=now_ms())
        findings.raise_finding(c, code="oom", severity="info", subject="/", detail="", campaign_id=None, now_ms=now_ms())
        settings.observe(c, "limits", {"admission.concurrency": 7}, now_ms=now_ms())
    assert values("trials") == ["t0003", "t0002", "t0001"] and values("trials", "2") == ["2"] and values("trials", "T0002") == ["t0002"]
    assert values("trials", "3") == ["3"] and values("live_trials") == ["t0003"] and values("voided_trials") == ["t0001"]
    assert values("standing_trials") == ["t0003", "t0002"] and values("doubtful_trials") == ["t0002"]
    cell = f"c{4:04d}"
    assert values("parked_cells") == [cell] or len(values("parked_cells")) == 1
    assert values("campaigns") == ["x"] and values("arms") == ["plain", "goal"] and values("tasks", "z") == ["zstd"]
    assert values("arms", campaign="nobody") == [] and values("arms", campaign="x") == ["plain", "goal"]
    assert values("findings") == ["1"] and values("finding_codes") == ["oom"] and values("numbers_or_codes") == ["1", "oom"]
    assert "provider" in values("void_codes") and "engine_failed" not in values("void_codes")
    assert values("authors", "b") == ["ben"] and len(values("batches")) == 1 and len(values("blocks")) == 2
    assert values("knobs", "concurrency") == ["concurrency=7", "concurrency=default"]
    assert values("knobs", "admission.order=t") == ["admission.order=task-major"]
    assert values("tasks", "*") == [] and values("tasks", "[") == []


def test_a_value_that_a_shell_could_take_for_more_is_not_offered() -> None:
    words = [("good-1.0:x", "fine: $(x) `y` 'z' \"q\""), ("a b", ""), ("$(touch x)", ""), ("a;b", ""), ("\\$(x)", ""), ("*", ""), ("", "")]
    assert complete.plain(words) == [("good-1.0:x", "fine x y z q")]


def traces(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir() if path.is_file()}


def test_a_completion_leaves_no_trace(rig: Rig) -> None:
    """Beside a writer, after an orderly end, after a kill; and where there is no ledger, or one of another version."""
    mixed(rig)
    with rig.sql() as c:
        settings.observe(c, "limits", {}, now_ms=now_ms())
        before = traces(rig.state_dir)
        assert values("trials") and traces(rig.state_dir).keys() == before.keys()
        assert (
            traces(rig.state_dir)["ledger.db"] == before["ledger.db"] and traces(rig.state_dir)["ledger.db-wal"] == before["ledger.db-wal"]
        )
        shutil.copytree(rig.state_dir, killed := rig.state_dir / "killed", ignore=shutil.ignore_patterns("killed", "bin", "*.sock"))
    for leftover in rig.state_dir.glob("ledger.db-*"):
        leftover.unlink()
    before = traces(rig.state_dir)
    assert values("trials") and traces(rig.state_dir) == before
    os.environ["MARATHOND_DAEMON__STATE_DIR"] = str(killed)
    (killed / "ledger.db-shm").unlink()
    before = traces(killed)
    assert values("trials") == [] and traces(killed) == before  # to read it, SQLite would have to write
    (killed / "ledger.db").write_bytes(b"no ledger at all" * 1000)
    (killed / "ledger.db-wal").unlink()
    before = traces(killed)
    assert values("trials") == [] and values("knobs", "conc") and traces(killed) == before
    os.environ["MARATHOND_DAEMON__STATE_DIR"] = str(rig.state_dir / "nowhere")
    assert values("trials") == [] and not (rig.state_dir / "nowhere").exists()


def test_a_completion_that_fails_says_nothing(rig: Rig, tmp_path: Path) -> None:
    for name in ("MARATHOND_DAEMON__STATE_DIR",):
        os.environ.pop(name)
    broken = tmp_path / "broken.toml"
    broken.write_text("[daemon\n")
    done = completed(rig, "bash", "--config", str(broken), "show", "t")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("words", "place", "mended", "prefix"),
    [
        (["m", "set", "concurrency", "="], 3, ["m", "set", "concurrency="], "concurrency="),
        (["m", "set", "concurrency", "=", "8"], 4, ["m", "set", "concurrency=8"], "concurrency="),
        (["m", "set", "concurrency", "=", ""], 4, ["m", "set", "concurrency="], "concurrency="),
        (["m", "show", "t"], 2, ["m", "show", "t"], ""),
        (["m", "="], 1, ["m", "="], ""),
        (["m", ""], 1, ["m", ""], ""),
    ],
)
def test_what_bash_takes_apart_is_one_word_again(words: list[str], place: int, mended: list[str], prefix: str) -> None:
    environ = {"_MARATHONCTL_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(place)}
    assert _mended(environ) == prefix or words == ["m", "="]
    if words != ["m", "="]:
        assert environ["COMP_WORDS"].split("\n") == mended


def test_completion_costs_status_nothing(rig: Rig) -> None:
    code = "import sys; from marathond.cli import ctl; ctl.run(['status']); print('marathond.cli.complete' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, timeout=240, check=True)
    assert re.search(r"^False$", found.stdout, re.MULTILINE)
