"""Packing a folder that strangers may have arranged, and what may be packed or removed at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import socket
import tarfile
from pathlib import Path

import pytest

from marathond.core import keeping
from marathond.core.errors import ArtifactError
from marathond.core.keeping import DAY_MS, Trial, age_ms, not_packed, not_pruned, too_young
from marathond.tasks import archiving
from marathond.tasks.archiving import Recorded, altered, archive_of, file_sum, pack, prove, strange, tree_size

FILES = {"agent/agent.txt": b"said\n" * 100_000, "verifier/reward.txt": b"1\n", "artifacts/deep/er/x": b"\0" * 70_000, "agent/empty": b""}
ABOUT = {"ledger": "0123456789ab", "trial": "t0001"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out" / "t0001__zstd__plain__r1"
    for path, data in FILES.items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(data)
    (made / "result.json").write_text('{"id": "x"}')
    (tmp_path / "to").mkdir()
    return made


RECORDED = [Recorded(path, hashlib.sha256(data).hexdigest(), len(data)) for path, data in FILES.items()]


def packed(folder: Path, name: str = "a.tar.gz") -> archiving.Packed:
    return pack(folder, RECORDED, folder.parents[1] / "to" / name, about=ABOUT, at_s=1_790_000_000)


def test_an_archive_holds_every_byte_says_what_it_is_and_any_tar_unpacks_it(folder: Path, tmp_path: Path) -> None:
    said = packed(folder)
    file = tmp_path / "to" / "a.tar.gz"
    assert (said.sha256, said.size_bytes) == (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size)
    assert said.files == len(FILES) + 1 and said.content_bytes == sum(map(len, FILES.values())) + 11
    assert archive_of(file) == ("0123456789ab", "t0001") and file_sum(file) == (said.sha256, said.size_bytes)
    with tarfile.open(file) as tar:
        assert {info.mtime for info in tar} == {1_790_000_000} and all(info.isreg() for info in tar)
        tar.extractall(tmp_path / "again", filter="data")
    again = tmp_path / "again" / folder.name
    assert {path: (again / path).read_bytes() for path in FILES} == FILES
    manifest = json.loads((again / archiving.MANIFEST).read_text())
    assert manifest["files"]["verifier/reward.txt"]["bytes"] == 2 and manifest["trial"] == "t0001"


def test_the_same_content_gives_the_same_bytes_so_a_repetition_replaces_it_by_its_like(folder: Path) -> None:
    one = packed(folder)
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))
    assert packed(folder) == one == packed(folder, "b.tar.gz")


def test_what_nobody_exported_is_refused_by_name_and_never_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "agent" / "notes.txt").write_text("somebody's")
    (folder / "agent" / "link").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "verifier" / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
    (folder / "elsewhere").mkdir()
    (folder / os.fsdecode(b"\xff\x1b[2J")).write_text("")
    found = strange(folder, RECORDED)
    assert [line for line in found if "secret" in line] == []
    assert set(found) == {
        "agent/notes.txt: was not written by marathond",
        "agent/link: is a symbolic link, which nobody exported",
        "loop: is a symbolic link, which nobody exported",
        "verifier/pipe: is a fifo, which nobody exported",
        "s: is a socket, which nobody exported",
        "elsewhere: is a folder, which nobody exported",
        "\\xff\x1b[2J: was not written by marathond",
    }
    with pytest.raises(ArtifactError, match="and 2 more"):
        packed(folder)
    assert list((tmp_path / "to").iterdir()) == []


def test_a_device_in_the_place_of_a_file_is_not_opened(folder: Path) -> None:
    (folder / "agent/empty").unlink()
    try:
        os.mknod(folder / "agent/empty", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        os.mkfifo(folder / "agent/empty")  # would block for ever if it were opened for reading
    assert len(altered(folder, RECORDED)) == 1 and "agent/empty: " in altered(folder, RECORDED)[0]
    assert len(strange(folder, RECORDED)) == 2  # it is there as what nobody exported, and the file is missing


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "verifier/reward.txt").write_bytes(b"0\n"), r"verifier/reward.txt: is not what was exported \(sha256 4355a46b19d3"),
        (lambda f: (f / "verifier/reward.txt").write_bytes(b"1\n1"), "verifier/reward.txt: is not what was exported"),
        (lambda f: (f / "verifier/reward.txt").write_bytes(b""), "reward.txt: is not what was exported"),
        (lambda f: (f / "agent/agent.txt").unlink(), "agent/agent.txt: is missing"),
        (
            lambda f: os.truncate(f / "agent/agent.txt", 1 << 40),
            "agent/agent.txt: is not what was exported",
        ),  # sparse, and never read through
    ],
)
def test_what_changed_since_the_export_is_named_and_leaves_no_archive(folder: Path, tmp_path: Path, change: object, words: str) -> None:
    assert altered(folder, RECORDED) == []
    assert callable(change)
    change(folder)
    with pytest.raises(ArtifactError, match=words):
        packed(folder)
    assert list((tmp_path / "to").iterdir()) == []
    assert len(altered(folder, RECORDED)) == 1


def test_an_archive_that_is_not_what_was_packed_is_seen(folder: Path, tmp_path: Path) -> None:
    packed(folder)
    file = tmp_path / "to" / "a.tar.gz"
    sums = {one.path: (one.sha256, one.size_bytes) for one in RECORDED}
    sums["result.json"] = (hashlib.sha256(b'{"id": "x"}').hexdigest(), 11)
    assert prove(file, folder.name, sums)[0] == file_sum(file)[0]
    with pytest.raises(ArtifactError, match="lacks more"):
        prove(file, folder.name, {**sums, "more": ("", 0)})
    with pytest.raises(ArtifactError, match="nobody packed"):
        prove(file, folder.name, {path: each for path, each in sums.items() if path != "agent/empty"})
    with pytest.raises(ArtifactError, match="is not what was packed"):
        prove(file, folder.name, {**sums, "agent/empty": ("0" * 64, 0)})
    whole = file.read_bytes()
    for broken in (
        whole[: len(whole) // 2],
        b"",
        b"no archive",
        gzip.compress(b"no tar"),
        whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
    ):
        file.write_bytes(broken)
        with pytest.raises(ArtifactError, match=r"a\.tar\.gz"):
            prove(file, folder.name, sums)
    for foreign in (b"", b"text", gzip.compress(b"x" * 2000)):
        file.write_bytes(foreign)
        assert archive_of(file) is None


def test_sizes_follow_no_link_and_are_bounded(folder: Path, tmp_path: Path) -> None:
    (folder / "loop").symlink_to(tmp_path)
    files, size, whole = tree_size(folder)
    assert (files, whole) == (len(FILES) + 2, True) and size > 500_000
    assert tree_size(folder, at_most=3)[2] is False and tree_size(tmp_path / "nothing") == (0, 0, True)


RESTED = Trial("scored", 100 * DAY_MS, claim_live=False, imported=False, archived=True, pruned=False)


def test_what_may_be_packed_and_what_may_go() -> None:
    def why(trial: Trial, **asked: object) -> str:
        given = {"now_ms": 130 * DAY_MS, "older_than_ms": 30 * DAY_MS, **asked}
        return not_pruned(trial, **given)  # type: ignore[arg-type]

    from dataclasses import replace

    assert not_packed(RESTED) == why(RESTED) == ""
    assert why(RESTED, now_ms=130 * DAY_MS - 1) == "came to rest within the last 30 days"
    assert why(RESTED, now_ms=0) == "came to rest within the last 30 days"  # a clock that went back makes nothing old
    for asked, words in (("4w", "28 days"), ("1d", "day"), ("24h", "day"), ("36h", "36 hours"), ("1h", "hour"), ("90m", "90 minutes")):
        assert why(RESTED, now_ms=100 * DAY_MS, older_than_ms=age_ms(asked)) == f"came to rest within the last {words}"
        assert too_young(5, now_ms=5, older_than_ms=age_ms(asked)) == f"was last used within the last {words}"
    assert (
        why(replace(RESTED, archived=False)).startswith("is not archived") and why(replace(RESTED, archived=False), unarchived=True) == ""
    )
    assert why(RESTED, voids_only=True) == "is scored, and only voids were asked for"
    assert why(replace(RESTED, state="voided"), voids_only=True) == ""
    assert why(replace(RESTED, claim_live=True)) == "is not torn down yet" and why(replace(RESTED, pruned=True)) == "is pruned already"
    for state in ("reserved", "preparing", "running", "verifying", "review"):
        assert f"is {'in review' if state == 'review' else state}" in why(replace(RESTED, state=state), unarchived=True)
    assert why(replace(RESTED, rested_at_ms=None)) == "is not exported yet" and "imported" in why(replace(RESTED, imported=True))
    assert too_young(0, now_ms=DAY_MS, older_than_ms=DAY_MS) == "" and too_young(1, now_ms=DAY_MS, older_than_ms=DAY_MS) != ""


def test_ages_are_read_or_refused() -> None:
    assert [age_ms(text) for text in ("90m", "12h", "30d", "4w", "0d")] == [5_400_000, 43_200_000, 30 * DAY_MS, 28 * DAY_MS, 0]
    for text in ("", "30", "d", "-1d", "30 d", "1.5d", "30D", "9999999d", "30days"):
        with pytest.raises(ValueError, match="must be such as"):
            age_ms(text)
    assert keeping.Kind("backup") is keeping.Kind.BACKUP
