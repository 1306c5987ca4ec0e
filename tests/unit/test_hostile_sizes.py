"""What is too many, too large or too long costs a bounded amount of work: bytes read, things opened, memory at its highest."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.cli import logs
from marathond.core.text import printable
from marathond.tasks.artifacts import export_tree
from marathond.tasks.removal import ASIDE_AT_MOST, Found, empty_folder, remove_tree
from tests.support.measured import MB, work

SPARSE = 10 << 30
GIGABYTE = 1 << 30
MANY = 30_000
MAX_FILES = 100


class Stop(Exception):
    """As a cancelled worker thread is told."""


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where the system has one: thousands of files cost nothing there."""
    shm = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="mt-", dir=shm if os.access(shm, os.W_OK) else None))
    yield folder
    remove_tree(folder)


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as stream:
        stream.truncate(size)


def fill(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    top = os.open(folder, os.O_RDONLY)
    try:
        for number in range(count):
            os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=top))
    finally:
        os.close(top)


def test_a_metrics_json_of_a_gigabyte_is_refused_after_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "reward.txt").write_text("1\n")
    for name in ("metrics.json", "stages.json", "reward.json", "ctrf.json", "a_ctrf.json"):
        sparse(tmp_path / "verifier" / name, GIGABYTE)
    done = work(
        "from pathlib import Path; from marathond.tasks.scorefiles import collect",
        f"files, refused = collect(Path({str(tmp_path)!r})); told = [sorted(files), [each.source for each in refused]]",
    )
    assert done.told == [["reward.txt"], ["reward.json", "metrics.json", "stages.json", "ctrf.json", "a_ctrf.json"]]
    assert done.read_bytes < 44 * MB  # 1 and 4 and 4 MB, twice 16, and what a look costs
    assert done.rss_bytes < 64 * MB


def test_a_sparse_file_of_ten_gigabytes_is_named_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    sparse(tmp_path / "from" / "core", SPARSE)
    (tmp_path / "from" / "small").write_text("x")
    done = work(
        "from pathlib import Path; from marathond.tasks.artifacts import export_tree",
        f"found = export_tree(Path({str(tmp_path)!r}) / 'from', Path({str(tmp_path)!r}) / 'to', max_bytes=1 << 31, max_files=100)\n"
        "told = {each.path: each.skipped for each in found}",
    )
    assert done.told == {"core": f"too large: {(1 << 31) - 1} bytes were left to copy", "small": ""}
    assert done.read_bytes < MB and sorted(path.name for path in (tmp_path / "to").iterdir()) == ["small"]


@pytest.mark.parametrize("wanted", ["True", "kind == 'folder'"])
def test_of_countless_entries_a_stated_number_is_looked_at_wanted_or_not(memory: Path, wanted: str) -> None:
    """Also where all of them together are far more than any one folder shows."""
    for number in range(20):
        fill(memory / "from" / f"d{number:02}", MAX_FILES // 2)
    done = work(
        "import os; from pathlib import Path; from marathond.tasks import artifacts",
        "looks = [0]; look = artifacts._look\n"
        "def counted(*args):\n    looks[0] += 1\n    return look(*args)\n"
        "artifacts._look = counted\n"
        f"found = artifacts.export_tree(Path({str(memory)!r}) / 'from', Path({str(memory)!r}) / 'to', max_bytes=1 << 20,"
        f" max_files={MAX_FILES}, wanted=lambda parts, kind: {wanted})\n"
        "told = [looks[0], sum(not each.skipped for each in found), [each.skipped for each in found if each.skipped]]",
    )
    copied = MAX_FILES - 20 if wanted == "True" else 0
    assert done.told == [MAX_FILES, copied, [f"more than {MAX_FILES} entries: the rest was not looked at"]]


def test_a_walk_over_countless_entries_can_be_told_to_stop(memory: Path) -> None:
    fill(memory / "from", 50)
    seen = 0

    def stop() -> None:
        nonlocal seen
        seen += 1
        if seen == 10:
            raise Stop

    with pytest.raises(Stop):
        export_tree(memory / "from", memory / "to", max_bytes=1, max_files=1000, checkpoint=stop, wanted=lambda parts, kind: False)
    seen = 0
    with pytest.raises(Stop):
        empty_folder(memory / "from", stop)
    assert len(list((memory / "from").iterdir())) == 50 - 9
    assert empty_folder(memory / "from").count == 41


@pytest.mark.parametrize("below", ["", "d", "d/e"])
def test_countless_files_are_removed_in_little_memory(memory: Path, below: str) -> None:
    """Names are not collected: 30,000 of them would be 3 MB, and a million a hundred."""
    fill(memory / "run" / below, MANY)
    done = work(
        "from pathlib import Path; from marathond.tasks.removal import empty_folder",
        f"found = empty_folder(Path({str(memory)!r}) / 'run'); told = [found.count, len(found.names)]",
    )
    assert done.told == ([1, 1] if below else [MANY, 100])
    assert list((memory / "run").iterdir()) == []
    assert MANY <= done.acts < MANY + 50
    assert done.rss_bytes < 2 * MB


def test_countless_full_folders_are_moved_aside_a_few_at_a_time(memory: Path) -> None:
    count = 3 * ASIDE_AT_MOST + 7
    for number in range(count):
        (memory / "run" / "d" / f"d{number}" / "e" / "f").mkdir(parents=True)
    most = 0

    def look() -> None:
        nonlocal most
        if len(seen) % 97 == 0:
            most = max(most, sum(1 for _ in os.scandir(memory / "run")))
        seen.append(1)

    seen: list[int] = []
    assert empty_folder(memory / "run", look) == Found(("d",), 1)
    assert list((memory / "run").iterdir()) == [] and ASIDE_AT_MOST // 2 < most <= ASIDE_AT_MOST + 2


def test_a_line_of_a_hundred_megabytes_passes_in_pieces_and_a_message_of_that_size_not_at_all(tmp_path: Path) -> None:
    line, after = 100 * MB, '{"after": 1}'
    sparse(tmp_path / "log", line)
    with (tmp_path / "log").open("ab") as stream:
        stream.write(f"\n{after}\n".encode())
    opening = f"stream = open({str(tmp_path / 'log')!r}, 'rb'); pieces = iter(lambda: stream.read(logs.CHUNK), b'')\n"
    shown = work(
        "from marathond.cli import logs",
        opening + "sizes = [len(each) for each in logs._lines(pieces)]; told = [sum(sizes), max(sizes), sizes[-1]]",
    )
    assert shown.told[0] == line + len(after) and shown.told[1] <= logs.LINE_MAX + logs.CHUNK and shown.told[2] == len(after)
    assert shown.rss_bytes < 4 * MB and shown.read_bytes < line + MB
    heard = work("from marathond.cli import logs", opening + "told = list(logs._lines(pieces, parts=False))")
    assert heard.told == [after] and heard.rss_bytes < logs.MESSAGE_MAX * 3


def cost(text: str, size: int) -> float:
    """Processor time of this thread alone, the least of three."""
    whole = text * (size // len(text))
    times = []
    for _ in range(3):
        began = time.thread_time()
        printable(whole, size)
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("text", ["\x9d", "\x90a", "\x1b]", "\x1b]a", "\x9b0", "\x9b;", "\x1b", "\x1bP\x9d", "\x1b ", "a"], ids=repr)
def test_the_power_of_a_text_is_taken_in_one_pass(text: str) -> None:
    """Sixteen times the text is sixteen times the work, with room for noise; a pass for each beginning would be 256 times."""
    assert cost(text, 160_000) < 80 * max(cost(text, 10_000), 0.0002)


def test_logs_reads_what_was_there_to_the_end(tmp_path: Path) -> None:
    pieces = [b"a", b"b\n\nc", b"d\ne"]
    assert list(logs._lines(iter(pieces))) == ["ab", "", "cd", "e"]
    assert list(logs._lines(iter([b"x" * (logs.LINE_MAX + 1), b"y\n"]))) == ["x" * (logs.LINE_MAX + 1), "y"]
