"""What agents, verifiers and task directories bring along that is too large, too many, no plain file or no plain name: through real trials.

Two campaigns: agents and verifiers that leave such things, and tasks whose directories have such names.  None may cost a cell an attempt,
close admission, leave a run directory behind, or make a table do something.
"""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from marathond.cli import ctl
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import ExecInfo, ExecSpec
from marathond.tasks.harbor import MAX_INSTRUCTION_BYTES
from marathond.tasks.layout import trial_folder
from tests.support.hostile import Ran, campaign
from tests.support.poison import powers
from tests.support.rig import CALL_TIMEOUT_S, PATIENCE_S, make_task

pytestmark = pytest.mark.docker

MAX_FILES, MAX_MB = 400, 8
COUNTLESS = 4000
SPARSE_GB, LINE_MB = 10, 100
REWARD = "echo 1 >/logs/verifier/reward.txt\n"
SOCKET = "perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(\"sock\")) or die'"
LINES = 'a\nb\' "$(id)" `id` \\ ;\n\n'
"""Of a variable's value."""

ODD = f"""cd /logs/artifacts && echo kept >plain
mknod char c 10 130 && mknod block b 7 0 && mkfifo fifo && {SOCKET}
ln -s /etc/passwd link-out && ln -s ../../../../../../../../etc link-up && ln plain hard && ln -s plain link-in
mkdir locked && echo x >locked/x && chmod 000 locked && chmod 4777 plain
touch -- "-rf" "$(printf 'new\\nline')" "$(printf '\\033[2Jesc')" "$(printf 'no\\377text')"
cat /inputs.tar >evil.tar 2>/dev/null || printf %s "$EVIL" | perl -MMIME::Base64 -ne 'print decode_base64($_)' >evil.tar
rm -rf /logs/artifacts/.. 2>/dev/null; exit 0
"""
AGENTS = {
    "leaves-odd-things": ODD,
    "leaves-countless": f"cd /logs/artifacts; perl -e 'for (1..{COUNTLESS}) {{ open F, q(>), qq(f$_) }}'; mkdir d; cd d;"
    f" perl -e 'for (1..{COUNTLESS}) {{ mkdir qq(d$_) }}'; cd /logs/verifier; perl -e 'for (1..{COUNTLESS}) {{ open F, q(>), qq(f$_) }}'",
    "leaves-sparse": f"truncate -s {SPARSE_GB}G /logs/artifacts/core /marathond/ctl/exit-status; echo small >/logs/artifacts/a",
    "one-line": f"head -c {LINE_MB}M /dev/zero | tr '\\\\0' x",
    "whole-instruction": f"# {'x' * (MAX_INSTRUCTION_BYTES - 200)}\nwc -c <$MARATHOND_INSTRUCTION",
    "too-long-instruction": "x" * (10 << 20),
    "many-lines": 'printf %s "$LINES" >/seen; exit 0',
    "plain": "exit 0",
}
VERIFIERS = {
    "huge-metrics": f"truncate -s 1G /logs/verifier/metrics.json; {REWARD}",
    "huge-line": f"truncate -s {LINE_MB}M /logs/verifier/test-stdout.txt; printf 'end\\n'; {REWARD}",
    "binary": "head -c 65536 /dev/urandom; printf '\\033[2J\\033]0;owned\\007\\n\\0\\n'; head -c 300 /dev/urandom >"
    "/logs/verifier/reward.txt",
}


def evil_tar() -> bytes:
    """Entries that go up, that are absolute, that are links: nothing of ours ever unpacks an agent's archive."""
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in ("../../../../../../tmp/mt-escaped", "/tmp/mt-escaped"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            tar.addfile(entry, BytesIO(b"evil"))
        for kind, name in ((tarfile.SYMTYPE, "up"), (tarfile.LNKTYPE, "hard"), (tarfile.CHRTYPE, "device")):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            tar.addfile(entry)
    return data.getvalue()


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root, tasks = tmp_path_factory.mktemp("inputs"), []
    for name, script in AGENTS.items():
        environment = f"[environment.env]\nLINES = {json.dumps(LINES)}\n" if name == "many-lines" else ""
        test = REWARD
        if name == "many-lines":
            test = f'[ "$LINES" = "$SEEN" ] && same=true || same=false; echo "{{\\"same\\": $same}}" >/logs/verifier/metrics.json; {REWARD}'
            test = 'SEEN="$(cat /seen; echo x)"; SEEN="${SEEN%x}"\n' + test
        tasks.append(make_task(root, name, instruction=script, test=test, toml=environment, agent_s=300, verifier_s=300))
    tasks += [make_task(root, name, instruction="exit 0", test=test, agent_s=300, verifier_s=300) for name, test in VERIFIERS.items()]
    tar = root / "evil.tar"
    tar.write_bytes(evil_tar())
    tar.chmod(0o644)
    mounts = [{"source": str(tar), "target": "/inputs.tar", "read_only": True}]
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"'], "mounts": mounts}}
    overrides = {"limits.artifact_max_files": MAX_FILES, "limits.artifact_max_mb": MAX_MB}
    with campaign(docker_host, tasks, arms, overrides) as ran:
        yield ran


def assert_no_run_directory(ran: Ran) -> None:
    """Each goes after its export is written down; whatever lies in it."""
    folder, until = ran.rig.root / "state" / "r", time.monotonic() + PATIENCE_S
    while left := [path.name for path in folder.iterdir()]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def left_out(ran: Ran, task: str) -> dict[str, str]:
    rows = ran.rig.sql("SELECT path, why FROM artifact WHERE trial_id = ? AND sha256 = ''", ran.trial(task))
    return {str(path): str(why) for path, why in rows}


def told(ran: Ran, *argv: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    ctl.run(["--config", str(ran.rig.config), *argv])
    said = capsys.readouterr()
    assert powers(said.out + said.err) == set(), argv
    return said.out + said.err


def test_things_that_are_no_plain_file_are_named_and_left(ran: Ran) -> None:
    assert ran.reward("leaves-odd-things") == 1.0
    assert {Path(path).name: why for path, why in left_out(ran, "leaves-odd-things").items()} == {
        **{"char": "device", "block": "device", "fifo": "fifo", "sock": "socket"},
        **dict.fromkeys(("link-out", "link-up", "link-in"), "symbolic link"),
        "no\\xfftext": "its name is not UTF-8",
    }
    kept = ran.folder("leaves-odd-things") / "artifacts"
    assert (kept / "plain").read_text() == (kept / "hard").read_text() == "kept\n" and (kept / "locked" / "x").read_text() == "x\n"
    assert not any(path.is_symlink() for path in kept.rglob("*")) and (kept / "plain").stat().st_mode & 0o7000 == 0
    assert (kept / "evil.tar").read_bytes() == evil_tar() and not Path("/tmp/mt-escaped").exists()


def test_of_countless_files_a_stated_number_is_kept_and_the_rest_named(ran: Ran) -> None:
    assert ran.reward("leaves-countless") == 1.0
    folder = ran.folder("leaves-countless") / "artifacts"
    assert sum(1 for path in folder.rglob("*") if path.is_file()) <= MAX_FILES
    assert left_out(ran, "leaves-countless") == {"artifacts/": f"more than {MAX_FILES} entries: the rest was not looked at"}
    removed, origin = ran.facts("leaves-countless")["removed before verification"]
    assert removed.startswith("f1, f10, f100") and removed.endswith(f"and {COUNTLESS - 20} more") and "agent" in origin


def test_a_sparse_file_of_ten_gigabytes_is_named_and_the_small_ones_are_kept(ran: Ran) -> None:
    assert ran.reward("leaves-sparse") == 1.0
    assert list(left_out(ran, "leaves-sparse")) == ["artifacts/core"]
    assert ran.agent("leaves-sparse", "exit_code, exit_source") == (0, "exec")
    assert (ran.folder("leaves-sparse") / "artifacts" / "a").read_text() == "small\n"


def test_metrics_of_a_gigabyte_are_refused_by_name_and_the_reward_stands(ran: Ran) -> None:
    assert ran.reward("huge-metrics") == 1.0
    sql = "SELECT name, source, value FROM score_part JOIN score USING (score_id) WHERE trial_id = ?"
    assert ran.rig.sql(sql, ran.trial("huge-metrics")) == [("refused 1", "metrics.json", f"more than {4 << 20} bytes (too_large)")]
    assert list(left_out(ran, "huge-metrics")) == ["verifier/metrics.json"]


@pytest.mark.parametrize(("task", "path"), [("one-line", "agent/output.txt"), ("huge-line", "verifier/test-stdout.txt")])
def test_a_line_of_a_hundred_megabytes_hinders_nobody(ran: Ran, task: str, path: str) -> None:
    assert ran.reward(task) == 1.0
    size, why = ran.rig.one("SELECT size_bytes, why FROM artifact WHERE trial_id = ? AND path = ?", ran.trial(task), path)
    assert size >= LINE_MB << 20 and "too large" in why


def test_an_instruction_arrives_whole_or_its_task_parks(ran: Ran) -> None:
    size = len(AGENTS["whole-instruction"])
    assert (ran.folder("whole-instruction") / "agent" / "output.txt").read_text() == f"{size}\n"
    assert ran.park("too-long-instruction", "sh") == ("task_broken", f"instruction.md: {10 << 20} bytes: at most {MAX_INSTRUCTION_BYTES}")


def test_a_variable_of_many_lines_arrives_as_it_is(ran: Ran) -> None:
    assert ran.reward("many-lines") == 1.0 and ran.parts("many-lines")["same"] == "true"


def test_a_verifier_that_speaks_no_text_is_shown_without_its_power(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran.review("binary")[0] == "score_unreadable"
    label = f"t{ran.trial('binary')}"
    for argv in (["review"], ["review", label], ["show", label], ["status"], ["findings", "--all"]):
        assert told(ran, *argv, capsys=capsys)


def test_nothing_of_a_trial_is_left_and_none_cost_an_attempt(ran: Ran) -> None:
    assert_no_run_directory(ran)
    assert ran.stop_losses() == [] and ran.rig.sql("SELECT * FROM void") == []
    assert ran.rig.one("SELECT count(*) FROM trial") == len(AGENTS) + len(VERIFIERS) - 1


NAMES = (
    *("quote'\"s", "new\nline", "'; DROP TABLE trial; --", "-rf", "$(touch owned)", " blanks ", "\u202etxt.exe", "a[1]*?", "\x1b[2Jesc"),
    *("%s{0}", "<script>", "ünï 日本", "=1+1", "x" * 255),
)


@pytest.fixture(scope="module")
def named(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("names")
    tasks = [make_task(root, name, instruction="exit 0", test=REWARD, agent_s=300, verifier_s=300) for name in NAMES]
    with campaign(docker_host, tasks, {"sh": {"kind": "nop"}}) as ran:
        yield ran


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_task_of_any_name_is_run_whole_and_its_folder_is_a_plain_one(named: Ran, name: str) -> None:
    assert named.reward(name) == 1.0
    folder = named.folder(name)
    assert folder.name == trial_folder(named.trial(name), name, "sh", 1) and folder.name.isascii() and folder.parent.name == "test"
    assert json.loads((folder / "result.json").read_text())["task_name"] == name


def test_no_name_reaches_a_table_with_its_power(named: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    assert powers(" ".join(NAMES)) != set()
    forms = ("status", "plan", "plan --cells", "plan --json", "config check", "report", "report --html -", "report --csv", "report --json")
    for argv in (*forms, "findings", "arms", "disclosures", "audit", "sql --csv SELECT*FROM(v_cell)", "show t1", "show t2"):
        assert told(named, *argv.split(), capsys=capsys), argv
    assert named.rig.one("SELECT count(*) FROM trial") == len(NAMES) and not Path("owned").exists()


class Forgetful(DockerEngine):
    """A real engine that answers as one does after a restart under live-restore: of agents' execs that are waited for it knows nothing."""

    def __init__(self, url: str) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.agents, self.forgotten = set[str](), set[str]()

    async def create_exec(self, container_id: str, spec: ExecSpec) -> str:
        made = await super().create_exec(container_id, spec)
        if "marathond-agent" in spec.argv:
            self.agents.add(made)
        return made

    async def wait_exec(self, exec_id: str) -> ExecInfo | None:
        if exec_id not in self.agents:
            return await super().wait_exec(exec_id)
        self.forgotten.add(exec_id)
        return None

    async def inspect_exec(self, exec_id: str) -> ExecInfo | None:
        return None if exec_id in self.forgotten else await super().inspect_exec(exec_id)


FORGED = {
    "says-nought": ("echo 0 >exit-status; exit 7", 7),
    "says-nought-and-dies": ("echo 0 >exit-status; kill -9 0", 0),
    "says-timer": ("echo timer >exit-status; kill -9 0", 137),
    "puts-a-device": ("mknod exit-status c 10 130; kill -9 0", None),
    "puts-a-link": ("ln -s /etc/hostname exit-status; kill -9 0", None),
    "puts-a-fifo": ("mkfifo exit-status; kill -9 0", None),
    "puts-a-socket": (f"{SOCKET}; mv sock exit-status; kill -9 0", None),
    "puts-gigabytes": ("truncate -s 10G exit-status; kill -9 0", None),
}
"""What it writes in the place of its exit status, and what is then believed, marked as a file's word."""


def test_c18_what_the_container_says_of_its_end_counts_only_where_the_engine_forgot_and_is_marked(docker_host: str, tmp_path: Path) -> None:
    tasks = [make_task(tmp_path, name, instruction=f"cd /marathond/ctl; {script}", test=REWARD) for name, (script, _) in FORGED.items()]
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}
    with campaign(docker_host, tasks, arms, engine=Forgetful(docker_host)) as ran:
        assert {name: ran.agent(name, "exit_code, exit_source, ended_by") for name in FORGED} == {
            name: (code, "file", "agent") for name, (_, code) in FORGED.items()
        }
        assert {ran.reward(name) for name in FORGED} == {1.0}
        assert ran.rig.sql("SELECT * FROM void") == []
        assert_no_run_directory(ran)
