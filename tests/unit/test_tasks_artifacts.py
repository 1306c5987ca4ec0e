"""Artifacts: nothing outside the run directory is read, nothing half-written is left, every entry is accounted for."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from anyio import from_thread, to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marathond.core.errors import ArtifactError
from marathond.tasks.artifacts import ArtifactRecord, export_tree, read_bounded, read_ends, write_atomic

MANY = 1000
LARGE = 1 << 20


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "run/verifier").mkdir(parents=True)
    (tmp_path / "run/verifier/reward.txt").write_text("1\n")
    return tmp_path / "run"


def export(run: Path, dest: Path, **limits: int) -> dict[str, ArtifactRecord]:
    records = export_tree(run, dest, **{"max_bytes": LARGE, "max_files": MANY, **limits})
    by_path = {record.path: record for record in records}
    assert len(by_path) == len(records)
    copied = {str(item.relative_to(dest)) for item in dest.rglob("*") if not item.is_dir()} if dest.exists() else set()
    assert copied == {record.path for record in records if not record.skipped}
    return by_path


def test_e07_what_is_copied_is_what_the_records_say(run: Path, tmp_path: Path) -> None:
    (run / "verifier/empty").write_bytes(b"")
    (run / "agent/sessions/deep").mkdir(parents=True)
    (run / "agent/sessions/deep/log.txt").write_bytes(b"x" * 70_000)
    records = export(run, tmp_path / "out/campaign/t0001")
    assert sorted(records) == ["agent/sessions/deep/log.txt", "verifier/empty", "verifier/reward.txt"]
    for path, record in records.items():
        data = (tmp_path / "out/campaign/t0001" / path).read_bytes()
        assert (record.sha256, record.size_bytes, record.skipped) == (hashlib.sha256(data).hexdigest(), len(data), "")
        assert data == (run / path).read_bytes()


def test_e07_every_file_is_synced_before_its_rename_and_every_folder_after(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def spy_fsync(descriptor: int) -> None:
        calls.append(("fsync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        fsync(descriptor)

    def spy_replace(self: Path, target: Path) -> Path:
        calls.append(("replace", str(target)))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(Path, "replace", spy_replace)
    out = tmp_path / "out"
    export(run, out)
    kinds = [kind for kind, _ in calls]
    assert kinds[:2] == ["fsync", "replace"] and calls[1] == ("replace", str(out / "verifier/reward.txt"))
    assert {path for kind, path in calls[2:] if kind == "fsync"} == {str(tmp_path), str(out), str(out / "verifier")}


def test_e07_a_failure_leaves_neither_the_new_file_nor_a_piece_of_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(out):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ArtifactError, match="No space left on device") as caught:
        export_tree(run, out, max_bytes=LARGE, max_files=MANY)
    assert caught.value.code == "no_space"
    assert [item for item in out.rglob("*") if not item.is_dir()] == []


@pytest.mark.parametrize(("number", "code"), [(errno.ESTALE, "io"), (errno.EPERM, "io"), (errno.EDQUOT, "no_space"), (errno.EIO, "io")])
def test_e07_errors_of_the_destination_have_a_code(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def broken(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", broken)
    for act in (
        lambda: export_tree(run, tmp_path / "out", max_bytes=LARGE, max_files=MANY),
        lambda: write_atomic(tmp_path / "file", b"new"),
    ):
        with pytest.raises(ArtifactError, match=errno.errorcode[number]) as caught:
            act()
        assert caught.value.code == code
    assert not (tmp_path / "file").exists()


def test_e07_a_repeated_export_replaces_what_a_crash_left(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = export(run, out)
    aside = hashlib.sha256(b"reward.txt").hexdigest()[:24]
    (out / f"verifier/.part-{aside}").write_text("half")
    (run / "verifier/reward.txt").write_text("0\n")
    second = export(run, out)
    assert first["verifier/reward.txt"].sha256 != second["verifier/reward.txt"].sha256
    assert (out / "verifier/reward.txt").read_text() == "0\n"


def test_links_pipes_sockets_and_strange_names_are_named_and_left(run: Path, tmp_path: Path) -> None:
    (run / "file-link").symlink_to(tmp_path / "secret")
    (run / "folder-link").symlink_to(tmp_path)
    (run / "inner-link").symlink_to("verifier/reward.txt")
    os.mkfifo(run / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run / "socket"))
    (run / os.fsdecode(b"bad-\xff")).write_text("x")
    records = export(run, tmp_path / "out")
    skipped = {path: record.skipped for path, record in records.items() if record.skipped}
    assert skipped == {
        "file-link": "symbolic link",
        "folder-link": "symbolic link",
        "inner-link": "symbolic link",
        "pipe": "fifo",
        "socket": "socket",
        "bad-\\xff": "its name is not UTF-8",
    }
    assert all(record.sha256 == "" for record in records.values() if record.skipped)


def test_devices_are_not_opened(run: Path, tmp_path: Path) -> None:
    try:
        os.mknod(run / "zero", 0o644 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root may make a device")
    assert export(run, tmp_path / "out")["zero"].skipped == "device"


def test_a_huge_sparse_file_does_not_starve_the_small_ones(run: Path, tmp_path: Path) -> None:
    (run / "agent").mkdir()
    with (run / "agent/core").open("wb") as stream:
        stream.truncate(1 << 40)
    (run / "agent/a-medium").write_bytes(b"m" * 600_000)
    (run / "agent/b-medium").write_bytes(b"n" * 700_000)
    records = export(run, tmp_path / "out")
    assert records["verifier/reward.txt"].skipped == "" and records["agent/a-medium"].skipped == ""
    assert "too large" in records["agent/core"].skipped and records["agent/core"].size_bytes == 1 << 40
    assert "too large" in records["agent/b-medium"].skipped


def test_too_many_entries_and_too_deep_folders_end_somewhere(run: Path, tmp_path: Path) -> None:
    for number in range(50):
        (run / f"verifier/{number:02d}").mkdir()
    few = export(run, tmp_path / "few", max_files=20)
    assert few[""].skipped == "more than 20 entries: the rest was not looked at"
    deep = run / "deep"
    for _ in range(40):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    records = export(run, tmp_path / "out")
    assert [record.skipped for record in records.values() if record.skipped] == ["more than 32 levels deep"]


def test_a_source_that_is_gone_or_a_link_is_one_record(run: Path, tmp_path: Path) -> None:
    assert export_tree(tmp_path / "gone", tmp_path / "out", max_bytes=1, max_files=1) == [ArtifactRecord("", "", 0, "the folder is gone")]
    (tmp_path / "link").symlink_to(run)
    assert "cannot be read" in export(tmp_path / "link", tmp_path / "out")[""].skipped


@pytest.mark.parametrize(
    ("swap", "reason"),
    [
        (lambda file, outside: file.symlink_to(outside / "secret"), "symbolic link"),
        (lambda file, _: os.mkfifo(file), "fifo"),
        (lambda file, _: None, "vanished"),
        (lambda file, _: file.write_bytes(b"x" * (2 * LARGE)), "grew beyond"),
    ],
)
def test_a_file_exchanged_between_the_look_and_the_copy(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: Callable[[Path, Path], None], reason: str
) -> None:
    import marathond.tasks.artifacts as module

    copy_all = module._copy_all

    def exchange_first(
        root: int, found: list[module._Found], dest: Path, max_bytes: int, checkpoint: Callable[[], None]
    ) -> list[ArtifactRecord]:
        (run / "verifier/reward.txt").unlink()
        swap(run / "verifier/reward.txt", tmp_path)
        return copy_all(root, found, dest, max_bytes, checkpoint)

    monkeypatch.setattr(module, "_copy_all", exchange_first)
    assert reason in export(run, tmp_path / "out")["verifier/reward.txt"].skipped


def test_a_folder_exchanged_for_a_link_between_the_look_and_the_copy(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import marathond.tasks.artifacts as module

    copy_all = module._copy_all
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/reward.txt").write_text("stolen")

    def exchange_first(
        root: int, found: list[module._Found], dest: Path, max_bytes: int, checkpoint: Callable[[], None]
    ) -> list[ArtifactRecord]:
        (run / "verifier").rename(tmp_path / "old")
        (run / "verifier").symlink_to(tmp_path / "elsewhere")
        return copy_all(root, found, dest, max_bytes, checkpoint)

    monkeypatch.setattr(module, "_copy_all", exchange_first)
    assert export(run, tmp_path / "out")["verifier/reward.txt"].skipped == "verifier is a symbolic link"


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_copied(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run / "locked").write_text("x")
    real = os.open

    def refuse(path: str, flags: int, *args: int, **kwargs: int) -> int:
        if path == "locked":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    records = export(run, tmp_path / "out")
    assert records["locked"].skipped == "cannot be read: Permission denied"
    assert records["verifier/reward.txt"].skipped == ""


def test_read_bounded(run: Path) -> None:
    assert read_bounded(run, "verifier/reward.txt", 2) == b"1\n"
    assert read_bounded(run, "verifier/metrics.json", 100) is None
    assert read_bounded(run, "nowhere/metrics.json", 100) is None
    assert read_bounded(run.parent / "gone", "reward.txt", 100) is None


def test_read_bounded_refuses(run: Path, tmp_path: Path) -> None:
    (run / "link").symlink_to(tmp_path / "secret")
    (run / "linked-folder").symlink_to(tmp_path)
    os.mkfifo(run / "pipe")
    with (run / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    for relative, code in {
        "link": "unsafe_path",
        "linked-folder/secret": "unsafe_path",
        "../secret": "unsafe_path",
        "verifier/../../secret": "unsafe_path",
        str(tmp_path / "secret"): "unsafe_path",
        "": "unsafe_path",
        "a\0b": "unsafe_path",
        "pipe": "not_regular",
        "verifier": "not_regular",
        "verifier/reward.txt/x": "not_regular",
        "sparse": "too_large",
        "n" * 300: "io",
    }.items():
        with pytest.raises(ArtifactError) as caught:
            read_bounded(run, relative, 1000)
        assert caught.value.code == code, relative
    with pytest.raises(ArtifactError, match="more than 1 bytes"):
        read_bounded(run, "verifier/reward.txt", 1)


def test_both_ends_of_a_long_file_are_read_and_a_short_one_whole(run: Path) -> None:
    (run / "log").write_bytes(b"head" + b"x" * 1000 + b"tail")
    assert read_ends(run, "log", head=4, tail=4) == b"head\ntail"
    assert read_ends(run, "log", head=4, tail=1004) == (run / "log").read_bytes()
    assert read_ends(run, "log", head=2000, tail=4) == (run / "log").read_bytes()
    assert read_ends(run, "log", head=1000, tail=1000) == (run / "log").read_bytes()
    assert read_ends(run, "none", head=4, tail=4) is None
    (run / "link").symlink_to(run / "log")
    with pytest.raises(ArtifactError) as refused:
        read_ends(run, "link", head=4, tail=4)
    assert refused.value.code == "unsafe_path"


def test_write_atomic_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 255)
    write_atomic(target, b"old")
    write_atomic(target, b"new")
    assert [item.name for item in tmp_path.iterdir()] == [target.name]
    assert target.read_bytes() == b"new" and target.stat().st_mode & 0o777 & ~0o644 == 0
    with pytest.raises(ArtifactError, match="ENOENT"):
        write_atomic(tmp_path / "no/such", b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArtifactError, match="EISDIR"):
        write_atomic(tmp_path / "folder", b"x")
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted(["folder", target.name])


def test_write_atomic_does_not_write_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "target").symlink_to("victim")
    write_atomic(tmp_path / "target", b"new")
    assert (tmp_path / "victim").read_text() == "mine" and not (tmp_path / "target").is_symlink()


NAMES = st.sampled_from(["a", "b", "sub", "sub/c", "sub/d", "sub/deep/e", "é"])
KINDS = st.sampled_from(["file", "large", "link-out", "link-in", "fifo"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60, deadline=None)
@given(tree=st.dictionaries(NAMES, KINDS, max_size=6), number=st.integers(0, 10**9))
def test_any_tree_is_accounted_for_and_nothing_foreign_is_copied(tmp_path: Path, tree: dict[str, str], number: int) -> None:
    case = tmp_path / f"{number}-{len(list(tmp_path.iterdir()))}"
    run = case / "run"
    run.mkdir(parents=True)
    (case / "secret").write_text("not yours")
    made = set()
    for name, kind in sorted(tree.items()):
        where = run / name
        if made & {str(above) for above in Path(name).parents}:
            continue
        where.parent.mkdir(parents=True, exist_ok=True)
        made.add(name)
        match kind:
            case "file":
                where.write_text(name)
            case "large":
                where.write_bytes(b"l" * 5000)
            case "link-out":
                where.symlink_to(case / "secret")
            case "link-in":
                where.symlink_to(".")
            case _:
                os.mkfifo(where)
    records = export(run, case / "out", max_bytes=6000)
    assert set(records) == made
    assert all("not yours" not in item.read_text() for item in (case / "out").rglob("*") if item.is_file())
    assert sum(record.size_bytes for record in records.values() if not record.skipped) <= 6000


@pytest.mark.anyio
async def test_f08_a_copy_ends_when_its_daemon_is_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "big").write_bytes(b"x" * (3 << 20))
    seen: list[int] = []
    with anyio.CancelScope() as scope:

        def look() -> None:
            seen.append(1)
            if len(seen) == 2:
                from_thread.run_sync(scope.cancel)
            from_thread.check_cancelled()

        def copy() -> None:
            export_tree(tmp_path / "source", tmp_path / "dest", max_bytes=1 << 30, max_files=10, checkpoint=look)

        await to_thread.run_sync(copy)
    assert scope.cancelled_caught
    assert len(seen) == 2
    assert [path for path in (tmp_path / "dest").rglob("*") if path.is_file()] == []
