"""Staging an npm package: the real npm against a small registry on this machine; and the real codex."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from marathond.core.errors import StageError
from marathond.staging import npm, pins, store, tree
from marathond.staging.progress import Progress
from tests.support import codex_env
from tests.support.registry import INSIDE, Registry, integrity, pack
from tests.support.staging_child import Child

OTHER = pins.KNOWN["0.171.0"]
PATIENCE_S = 60.0


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def wanted(tarball: Path) -> store.Wanted:
    return store.Wanted("codex", "0.171.0", integrity(tarball), None)


def staged(state: Path, wanted: store.Wanted) -> tuple[store.StagedTree, list[Progress]]:
    said: list[Progress] = []
    return store.stage(state, wanted, said.append), said


def refused(state: Path, wanted: store.Wanted, code: str) -> str:
    """The one line; and nothing is left but the lock."""
    with pytest.raises(StageError) as caught:
        store.stage(state, wanted, lambda _: None)
    assert caught.value.code == code, caught.value
    assert "\n" not in str(caught.value)
    assert names(state) <= {"lock"}
    assert store.find(state, wanted) is None
    return str(caught.value)


def names(state: Path) -> set[str]:
    return {path.name for path in (state / "staged").glob("*")}


def test_a_package_is_staged_whole(state: Path, wanted: store.Wanted, registry: Registry, tarball: Path) -> None:
    made, said = staged(state, wanted)
    source = tarball.parent / "source" / INSIDE
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert {str(path.relative_to(made.root)) for path in made.root.rglob("*") if path.is_file()} == files
    for name in files:
        assert (made.root / name).read_bytes() == (source / name).read_bytes()
        assert (made.root / name).stat().st_mode == (source / name).stat().st_mode
    assert made.source == "npm @openai/codex@0.171.0-linux-x64"
    assert made.integrity == wanted.integrity
    assert made.dropped == ("README.md", "package.json")
    steps = [progress.step for progress in said]
    assert [step for index, step in enumerate(steps) if step not in steps[:index]] == ["fetching", "checking", "unpacking"]
    assert max(progress.done for progress in said if progress.step == "unpacking") == made.bytes
    assert store.find(state, wanted) == made
    assert staged(state, wanted)[0] == made
    assert registry.tarballs == 1
    assert names(state) == {"lock", made.package_id}


def test_the_same_tree_from_a_folder_is_the_same_package(state: Path, wanted: store.Wanted, registry: Registry, tarball: Path) -> None:
    local = replace(wanted, integrity=None, folder=tarball.parent / "source" / INSIDE)
    copied, _ = staged(state, local)
    assert store.find(state, wanted) is None, "nobody has seen a package of that hash"
    fetched, _ = staged(state, wanted)
    assert fetched.package_id == copied.package_id
    assert store.find(state, wanted) == fetched
    assert store.find(state, local) == copied
    assert names(state) == {"lock", fetched.package_id}


def test_another_integrity_is_refused(state: Path, wanted: store.Wanted, registry: Registry) -> None:
    line = refused(state, replace(wanted, integrity=OTHER), "integrity")
    assert line == f"@openai/codex@0.171.0-linux-x64: has integrity {wanted.integrity}, the configuration pins {OTHER}"


def test_a_registry_whose_bytes_are_not_what_it_says(state: Path, wanted: store.Wanted, registry: Registry) -> None:
    registry.advertised = OTHER
    line = refused(state, wanted, "npm")
    assert "integrity checksum failed" in line
    registry.advertised = None
    assert staged(state, wanted)[0].integrity == wanted.integrity


def test_an_altered_package_of_a_registry_that_lies(state: Path, tmp_path: Path, wanted: store.Wanted, registry: Registry) -> None:
    """npm is content: what it is told and what it gets agree.  The pin is what refuses it."""
    registry.content = pack(tmp_path, padding=100_001).read_bytes()
    line = refused(state, wanted, "integrity")
    assert f"the configuration pins {wanted.integrity}" in line


def test_a_connection_that_ends_too_early(state: Path, wanted: store.Wanted, registry: Registry) -> None:
    registry.short_by = 100
    assert refused(state, wanted, "npm").startswith("npm could not fetch @openai/codex@0.171.0-linux-x64 (exit ")
    registry.short_by = 0
    store.verify(staged(state, wanted)[0])


def test_a_version_that_there_is_not(state: Path, wanted: store.Wanted, registry: Registry) -> None:
    assert "No matching version found for @openai/codex@0.172.0-linux-x64" in refused(state, replace(wanted, version="0.172.0"), "npm")


def test_a_registry_that_is_not_there(state: Path, wanted: store.Wanted, monkeypatch: pytest.MonkeyPatch, tarball: Path) -> None:
    with Registry(tarball).serving() as gone:
        environ = gone.environ()
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert "ECONNREFUSED" in refused(state, wanted, "npm")


def test_npm_is_missing(state: Path, wanted: store.Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused(state, wanted, "npm") == (
        "npm is not on PATH, it fetches @openai/codex@0.171.0-linux-x64: "
        "install it (Debian: apt-get install npm), or set codex.folder to a local tree"
    )


def test_an_npm_without_node(state: Path, wanted: store.Wanted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "npm").write_text("#!/usr/bin/env no-such-node\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    line = refused(state, wanted, "npm")
    assert "(exit 127)" in line
    assert "no-such-node" in line


def test_an_npm_that_hangs_is_ended(tmp_path: Path, registry: Registry) -> None:
    registry.gate.clear()
    folder = tmp_path / "fetch"
    with pytest.raises(StageError, match="within 2 s"):
        npm.fetch("@openai/codex@0.171.0-linux-x64", folder, lambda _: None, "codex.folder", deadline_s=2.0)
    assert gone(folder), processes_below(folder)


def test_disk_full_under_npm(wanted: store.Wanted, registry: Registry, small_disk: Path) -> None:
    """Its own words about the disk are passed on with our code."""
    registry.content += os.urandom(3 << 20)
    line = refused(small_disk, wanted, "no_space")
    assert line.startswith("npm could not fetch @openai/codex@0.171.0-linux-x64")
    registry.content = registry.content[: -(3 << 20)]
    store.verify(staged(small_disk, wanted)[0])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(point)], check=True)
    yield point
    subprocess.run(["umount", "--lazy", str(point)], check=True)  # an npm that has just failed may still stand in it


def processes_below(path: Path) -> list[int]:
    """Those whose current folder lies there, as npm's does."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                where = str((entry / "cwd").readlink())
            except OSError:  # it ended while we looked
                continue
            if where.startswith(str(path)):
                found.append(int(entry.name))
    return found


def gone(path: Path) -> bool:
    end = time.monotonic() + PATIENCE_S
    while processes_below(path):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_killed_while_it_fetches(state: Path, wanted: store.Wanted, registry: Registry) -> None:
    """npm dies with it; what was left is named and removed, and the next one fetches anew."""
    registry.gate.clear()
    child = Child(state, integrity=wanted.integrity or "", step="fetching", count=1)
    child.reached()
    assert registry.halfway.wait(PATIENCE_S)
    assert processes_below(state), "npm is at work"
    child.kill()
    assert gone(state), processes_below(state)
    registry.gate.set()
    left = names(state) - {"lock"}
    assert len(left) == 1
    assert store.find(state, wanted) is None
    made, said = staged(state, wanted)
    assert [p.text for p in said if p.step == "note"] == [f"{left.pop()}: left by a staging that was killed; removed"]
    store.verify(made)
    assert names(state) == {"lock", made.package_id}


def test_killed_while_it_unpacks(state: Path, wanted: store.Wanted, registry: Registry) -> None:
    child = Child(state, integrity=wanted.integrity or "", step="unpacking", count=50_000)
    child.reached()
    child.kill()
    assert store.find(state, wanted) is None
    made, _ = staged(state, wanted)
    store.verify(made)
    assert names(state) == {"lock", made.package_id}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version": "0.172.0", "label": "0.171.0-linux-x64"}, "is 0.172.0, the configuration asks for 0.171.0"),
        ({"label": "0.171.0-darwin-arm64"}, "calls itself @openai/codex@0.171.0-darwin-arm64"),
    ],
    ids=["other-program", "other-label"],
)
def test_a_package_that_is_another_than_it_says(
    state: Path, tmp_path: Path, wanted: store.Wanted, registry: Registry, options: dict[str, str], words: str
) -> None:
    made = pack(tmp_path, **options)  # type: ignore[arg-type]
    registry.content = made.read_bytes()
    code = "version" if "version" in options else "package"
    assert words in refused(state, replace(wanted, integrity=integrity(made)), code)


def archive(target: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(target, "w:gz") as out:
        for member in members:
            out.addfile(member, io.BytesIO(b"x" * member.size))
    return target


def member(name: str, size: int = 3, **fields: object) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = size
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def cut(path: Path) -> Path:
    os.truncate(path, path.stat().st_size // 2)
    return path


INNER = f"package/{INSIDE}"
BAD_PACKAGES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "leads-out": (lambda t: archive(t, member(f"{INNER}/../../../../out")), "leads out of the package"),
    "absolute": (lambda t: archive(t, member("/etc/x")), "leads out of the package"),
    "link": (lambda t: archive(t, member(f"{INNER}/l", 0, type=tarfile.SYMTYPE, linkname="/")), "is neither a file nor a folder"),
    "hard-link": (lambda t: archive(t, member(f"{INNER}/l", 0, type=tarfile.LNKTYPE, linkname="x")), "is neither a file nor a folder"),
    "twice": (lambda t: archive(t, member(f"{INNER}/a"), member(f"{INNER}/a")), "file exists"),
    "file-as-folder": (lambda t: archive(t, member(f"{INNER}/a"), member(f"{INNER}/a/b")), "file exists"),
    "cut": (lambda t: cut(archive(t, member(f"{INNER}/a", 100_000))), "cannot be unpacked"),
    "no-archive": (lambda t: (t.write_bytes(b"no archive at all"), t)[1], "cannot be unpacked"),
    "huge": (lambda t: archive(t, *(member(f"x/{n}", 0) for n in range(tree.FILES_MAX + 1))), f"holds more than {tree.FILES_MAX} files"),
}


@pytest.mark.parametrize(("make", "words"), BAD_PACKAGES.values(), ids=BAD_PACKAGES)
def test_a_package_that_must_not_be_unpacked(tmp_path: Path, make: Callable[[Path], Path], words: str) -> None:
    tarball = make(tmp_path / "p.tgz")
    (tmp_path / "in").mkdir()
    with pytest.raises(StageError) as caught:
        npm.unpack(tarball, str(INSIDE), tmp_path / "in" / "tree", lambda _: None)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"p.tgz", "in"}


def test_a_package_without_the_program(state: Path, tmp_path: Path, wanted: store.Wanted, registry: Registry) -> None:
    described = json.dumps({"name": "@openai/codex", "version": "0.171.0-linux-x64"}).encode()
    with tarfile.open(tmp_path / "p.tgz", "w:gz") as out:
        out.addfile(member("package/package.json", len(described)), io.BytesIO(described))
        out.addfile(member(f"{INNER}/bin/other", 0))
    registry.content = (tmp_path / "p.tgz").read_bytes()
    line = refused(state, replace(wanted, integrity=integrity(tmp_path / "p.tgz")), "package")
    assert line == f"@openai/codex@0.171.0-linux-x64: has no {INSIDE}/bin/codex"


@pytest.mark.skipif(bool(os.environ.get("MARATHOND_CODEX")), reason="MARATHOND_CODEX stands in for the package")
def test_the_real_codex() -> None:
    """Fetched by its pinned hash; everything that the client and code mode need is there, and runs."""
    made = codex_env.codex_tree()
    store.verify(made)
    assert made.integrity == pins.KNOWN[codex_env.VERSION]
    for name in ("bin/codex", "bin/codex-code-mode-host", "codex-path/rg", "codex-resources/bwrap"):
        assert os.access(made.root / name, os.X_OK), name
    assert (made.files, made.dropped) == (43, ("README.md", "package.json"))
    done = subprocess.run([made.root / "codex-path/rg", "--version"], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.startswith("ripgrep")
