"""Staging from a local folder: whole, named by its bytes, found cheaply, verified fully, healed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from marathond.core.errors import StageError
from marathond.staging import manifest, pins, store, tree
from marathond.staging.progress import Progress
from tests.support.registry import make_tree
from tests.support.staging_child import Child


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "source")


@pytest.fixture
def wanted(source: Path) -> store.Wanted:
    return store.Wanted("codex", "0.171.0", None, source)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def staged(state: Path, wanted: store.Wanted) -> tuple[store.StagedTree, list[Progress]]:
    said: list[Progress] = []
    return store.stage(state, wanted, said.append), said


def notes(said: list[Progress]) -> list[str]:
    return [progress.text for progress in said if progress.step == "note"]


def refused(state: Path, wanted: store.Wanted, code: str) -> str:
    """The one line; and nothing was left, neither a tree nor work in progress."""
    before = names(state)
    with pytest.raises(StageError) as caught:
        store.stage(state, wanted, lambda _: None)
    assert caught.value.code == code, caught.value
    assert "\n" not in str(caught.value)
    assert names(state) - before <= {"lock"}
    return str(caught.value)


def names(state: Path) -> set[str]:
    return {path.name for path in (state / "staged").glob("*")}


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p.relative_to(root)): (p.stat().st_mode & 0o777, p.read_bytes()) for p in root.rglob("*") if p.is_file()}


def test_a_folder_is_staged_whole(state: Path, source: Path, wanted: store.Wanted) -> None:
    (source / "codex-resources" / "voice").mkdir()
    (source / "codex-resources" / "voice" / "lib.so.0").write_text("library")
    (source / "codex-resources" / "voice" / "lib.so").symlink_to("lib.so.0")
    (source / "empty").mkdir()
    assert store.find(state, wanted) is None
    made, said = staged(state, wanted)
    assert contents(made.root) == contents(source)
    assert (made.root / "empty").is_dir()
    assert str((made.root / "codex-resources/voice/lib.so").readlink()) == "lib.so.0"
    assert made.root == state / "staged" / made.package_id / "tree"
    assert made.package_id == f"codex-0.171.0-{made.tree_sha256[:12]}"
    assert (made.version, made.source, made.dropped) == ("0.171.0", f"folder {source}", ())
    assert made.integrity == pins.sri("sha256", bytes.fromhex(made.tree_sha256))
    assert (made.files, made.bytes) == (
        6,
        sum(len(data) for path, (_, data) in contents(source).items() if path != "codex-resources/voice/lib.so"),
    )
    assert {progress.step for progress in said} == {"reading", "copying"}
    assert (said[-1].done, said[-1].total) == (made.bytes, made.bytes)
    assert store.find(state, wanted) == made
    store.verify(made)


def test_staging_again_changes_nothing(state: Path, wanted: store.Wanted) -> None:
    first, _ = staged(state, wanted)
    before = {path: path.stat().st_mtime_ns for path in (state / "staged").rglob("*") if path.name != "lock"}
    again, said = staged(state, wanted)
    assert again == first
    assert {progress.step for progress in said} == {"verifying"}
    assert {path: path.stat().st_mtime_ns for path in (state / "staged").rglob("*") if path.name != "lock"} == before


def test_owners_bits_and_umask_are_no_part_of_the_tree(state: Path, source: Path, wanted: store.Wanted) -> None:
    """An agent in a container is not the owner: what only the owner could run would fail there, in every trial."""
    first, _ = staged(state, wanted)
    (source / "bin" / "codex").chmod(0o700)
    (source / "codex-package.json").chmod(0o600)
    before = os.umask(0o077)
    try:
        again, _ = staged(state, wanted)
        other, _ = staged(state.with_name("other"), wanted)
    finally:
        os.umask(before)
    assert again.package_id == first.package_id == other.package_id
    for made in (again, other):
        assert {path: mode for path, (mode, _) in contents(made.root).items() if path in ("bin/codex", "codex-package.json")} == {
            "bin/codex": 0o755,
            "codex-package.json": 0o644,
        }


def test_a18_another_byte_is_another_package(state: Path, source: Path, wanted: store.Wanted) -> None:
    """A codex that is exchanged in mid-campaign has another id, which is part of the treatment; the old tree stays for who runs on it."""
    first, _ = staged(state, wanted)
    with (source / "bin" / "codex-code-mode-host").open("r+b") as stream:
        stream.seek(-2, os.SEEK_END)
        stream.write(b"1")
    later(source / "bin" / "codex-code-mode-host")
    assert store.find(state, wanted) is None, "the folder is another one now, and nobody staged it"
    second, _ = staged(state, wanted)
    assert second.package_id != first.package_id
    assert second.tree_sha256 != first.tree_sha256
    assert store.find(state, wanted) == second
    store.verify(first)
    store.verify(second)
    pinned = replace(wanted, integrity=first.integrity)
    assert store.find(state, pinned) == first, "pinned by its hash, the old one is still what is wanted"


def test_a18_a_mode_a_name_and_a_link_are_part_of_it(state: Path, source: Path, wanted: store.Wanted) -> None:
    ids = [staged(state, wanted)[0].package_id]
    (source / "codex-path" / "rg").chmod(0o644)
    ids.append(staged(state, wanted)[0].package_id)
    (source / "codex-path" / "rg").rename(source / "codex-path" / "rg2")
    ids.append(staged(state, wanted)[0].package_id)
    (source / "codex-path" / "rg").symlink_to("rg2")
    ids.append(staged(state, wanted)[0].package_id)
    assert len(set(ids)) == 4


def truncate(package: Path) -> None:
    os.truncate(package / "tree/codex-path/rg", 1000)


def later(path: Path) -> None:
    """The kernel's clock for files ticks every few ms: what is written twice within one tick carries one time."""
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 10_000_000))


def overwrite(package: Path) -> None:
    path = package / "tree/codex-path/rg"
    with path.open("r+b") as stream:
        stream.write(b"?")
    later(path)


def overwrite_and_hide(package: Path) -> None:
    """A bad disk does not touch the times."""
    path = package / "tree/codex-path/rg"
    before = path.stat()
    overwrite(package)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def to_a_link(package: Path) -> None:
    (package / "tree/codex-path/rg").unlink()
    (package / "tree/codex-path/rg").symlink_to("../bin/codex")


def forge(package: Path) -> None:
    where = package / "manifest.json"
    where.write_text(where.read_text().replace('"mode": 420', '"mode": 493'))


Damage = Callable[[Path], object]
DAMAGES: list[tuple[str, Damage, str, bool]] = [
    ("truncated", truncate, "codex-path/rg has 1000 bytes", True),
    ("altered", overwrite, "codex-path/rg", True),
    ("altered-hidden", overwrite_and_hide, "codex-path/rg has other content", False),
    ("removed", lambda p: (p / "tree/bin/codex-code-mode-host").unlink(), "bin/codex-code-mode-host is missing", True),
    ("added", lambda p: (p / "tree/bin/extra").write_text(""), "bin/extra does not belong there", True),
    ("mode", lambda p: (p / "tree/bin/codex").chmod(0o644), "bin/codex has mode 644, 755 was staged", True),
    ("replaced-by-link", to_a_link, "codex-path/rg is a link, a file was staged", True),
    ("tree-gone", lambda p: shutil.rmtree(p / "tree"), "tree", True),
    ("manifest-gone", lambda p: (p / "manifest.json").unlink(), "manifest.json is missing", True),
    ("manifest-cut", lambda p: os.truncate(p / "manifest.json", 500), "manifest.json: is damaged", True),
    ("manifest-of-another", forge, "describes codex-0.171.0-", True),
]


@pytest.mark.parametrize(("damage", "named", "seen_at_once"), [pytest.param(*rest, id=name) for name, *rest in DAMAGES])
def test_damage_is_named_and_staged_again(
    state: Path, source: Path, wanted: store.Wanted, damage: Damage, named: str, seen_at_once: bool
) -> None:
    made, _ = staged(state, wanted)
    damage(made.root.parent)
    looked = store.look(state, wanted)
    assert (looked.tree is None) == seen_at_once
    if seen_at_once:
        assert named in looked.why
        assert made.package_id in looked.why
    with pytest.raises(StageError) as caught:
        store.verify(made)
    assert named in str(caught.value)
    again, said = staged(state, wanted)
    assert any(named in note for note in notes(said)), notes(said)
    assert again == made
    assert contents(again.root) == contents(source)
    store.verify(again)
    assert store.find(state, wanted) == made
    (kept,) = names(state) - {"lock", made.package_id}
    assert kept.startswith(f"altered-{made.package_id}-"), "a container may have it mounted: it keeps its bytes"
    assert notes(said)[-1].startswith(f"{made.package_id} is staged again; the altered one is kept as {kept}")


def test_other_times_are_looked_into_once(state: Path, source: Path, wanted: store.Wanted) -> None:
    """As after a restored backup: nothing is copied, and a cheap look is content again."""
    made, _ = staged(state, wanted)
    later(made.root / "bin" / "codex")
    assert store.find(state, wanted) is None
    before = (made.root / "bin" / "codex").stat()
    again, said = staged(state, wanted)
    assert (again, {progress.step for progress in said}) == (made, {"verifying"})
    assert (made.root / "bin" / "codex").stat().st_ino == before.st_ino
    assert store.find(state, wanted) == made


def test_a_source_that_is_gone_is_not_needed_any_more(state: Path, source: Path, wanted: store.Wanted) -> None:
    made, _ = staged(state, wanted)
    shutil.rmtree(source)
    assert store.find(state, wanted) == made
    assert staged(state, wanted)[0] == made


def test_a_folder_of_another_version_is_refused(state: Path, tmp_path: Path, wanted: store.Wanted) -> None:
    other = make_tree(tmp_path / "newer", "0.172.0")
    line = refused(state, replace(wanted, folder=other), "version")
    assert line == f"folder {other}: is 0.172.0, the configuration asks for 0.171.0"
    assert staged(state, replace(wanted, folder=other, version="0.172.0"))[0].version == "0.172.0"


def test_an_old_version_is_refused_before_anything_is_touched(state: Path, tmp_path: Path, wanted: store.Wanted) -> None:
    old = replace(wanted, folder=make_tree(tmp_path / "old", "0.170.0"), version="0.170.0")
    assert refused(state, old, "version") == "codex 0.170.0: codex must be at least 0.171.0"
    assert not state.exists()


def garbage(program: Path) -> None:
    program.write_bytes(b"\x7fELF" + b"\0" * 100)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(garbage, "bin/codex cannot be run: exec format error", id="garbage"),
        pytest.param(lambda p: p.chmod(0o644), "bin/codex cannot be run: permission denied", id="not-executable"),
        pytest.param(lambda p: p.write_text("#!/bin/sh\necho nonsense\n"), "--version exits 0 and says nonsense", id="no-version"),
        pytest.param(lambda p: p.write_text("#!/bin/sh\necho 0.171.0; exit 3\n"), "--version exits 3 and says 0.171.0", id="fails"),
        pytest.param(lambda p: p.write_text("#!/bin/sh\nexit 1\n"), "--version exits 1 and says nothing", id="silent"),
    ],
)
def test_a_program_that_does_not_run_here_is_refused(
    state: Path, source: Path, wanted: store.Wanted, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(source / "bin" / "codex")
    assert words in refused(state, wanted, "version")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(lambda s: (s / "bin/codex").unlink(), "has no bin/codex; expected the content of vendor/", id="no-program"),
        pytest.param(shutil.rmtree, "has no bin/codex", id="no-folder"),
        pytest.param(lambda s: (s / "out").symlink_to("/etc/passwd"), "out: links to /etc/passwd, outside the tree", id="absolute-link"),
        pytest.param(lambda s: (s / "bin/out").symlink_to("../../x"), "bin/out: links to ../../x, outside the tree", id="link-out"),
        pytest.param(lambda s: os.mkfifo(s / "pipe"), "pipe: is neither a file nor a folder nor a link", id="fifo"),
    ],
)
def test_a_folder_that_cannot_be_a_tree_is_refused(
    state: Path, source: Path, wanted: store.Wanted, spoil: Callable[[Path], object], words: str
) -> None:
    spoil(source)
    assert words in refused(state, wanted, "folder")


def test_a_folder_that_is_much_more_than_codex_is_refused(state: Path, source: Path, wanted: store.Wanted) -> None:
    (source / "share").mkdir()
    (source / "share" / "sparse").touch()
    os.truncate(source / "share" / "sparse", tree.BYTES_MAX)
    assert f"holds more than {tree.FILES_MAX} files or 4 GB; name the tree itself" in refused(state, wanted, "folder")


def test_a_folder_may_be_pinned_by_its_hash(state: Path, wanted: store.Wanted) -> None:
    other = pins.sri("sha256", b"x" * 32)
    line = refused(state, replace(wanted, integrity=other), "integrity")
    assert line.endswith(f"the configuration pins {other}")
    made, _ = staged(state, wanted)
    assert made.integrity in line
    assert staged(state, replace(wanted, integrity=made.integrity))[0] == made


def test_the_hash_is_required_without_a_folder(state: Path, wanted: store.Wanted) -> None:
    assert "no integrity hash is given" in refused(state, replace(wanted, folder=None), "integrity")


@pytest.mark.parametrize(("step", "count"), [("reading", 1), ("copying", 0), ("copying", 50_000)])
def test_killed_in_mid_way(state: Path, source: Path, wanted: store.Wanted, step: str, count: int) -> None:
    child = Child(state, folder=source, step=step, count=count)
    child.reached()
    child.kill()
    left = {name for name in names(state) if name.startswith("aside-")}
    assert len(left) == 1
    assert store.find(state, wanted) is None
    made, said = staged(state, wanted)
    assert notes(said) == [f"{left.pop()}: left by a staging that was killed; removed"]
    store.verify(made)
    assert names(state) == {"lock", made.package_id}


def test_one_that_waits_too_long_is_told_who_is_at_work(state: Path, source: Path, wanted: store.Wanted) -> None:
    child = Child(state, folder=source, step="copying")
    child.reached()
    said: list[Progress] = []
    with pytest.raises(StageError) as caught:
        store.stage(state, wanted, said.append, patience_s=0.5)
    assert caught.value.code == "busy"
    assert str(caught.value) == f"{state / 'staged'}: another staging is at work, pid {child.process.pid}"
    assert {progress.step for progress in said} == {"waiting"}
    assert child.go_on().startswith("codex-0.171.0-")
    assert staged(state, wanted)[0].package_id.startswith("codex-0.171.0-")


def test_disk_full_before_it_is_full(state: Path, source: Path, wanted: store.Wanted, small_disk: Path) -> None:
    """What does not fit is not begun: the ledger may live on the same disk."""
    (source / "large").write_bytes(b"x" * (6 << 20))
    line = refused(small_disk, wanted, "no_space")
    assert "large: needs 6291456 bytes," in line
    (source / "large").unlink()
    store.verify(staged(small_disk, wanted)[0])


def test_disk_full_in_mid_file(state: Path, source: Path, wanted: store.Wanted) -> None:
    """A limit on a file's size stops a write that looked possible, as a quota would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        line = refused(state, wanted, "no_space")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert line.endswith("codex-path/rg: file too large")
    store.verify(staged(state, wanted)[0])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point)], check=True)
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_the_digest_is_what_it_says() -> None:
    """Length-prefixed: no two trees share a digest by moving a byte from one field to the next."""
    one = tree.digest([tree.Entry("ab", "file", 0o644, sha256="c")])
    assert one != tree.digest([tree.Entry("a", "file", 0o644, sha256="bc")])
    assert one == tree.digest([tree.Entry("ab", "file", 0o644, size=9, mtime_ns=9, sha256="c")])
    assert manifest.tree_integrity("00" * 32) == pins.sri("sha256", bytes(32))
