"""Sources of LoopX, Node and Python that are not what they should be: each refused by name, in one line."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from marathond.core.errors import StageError
from marathond.staging import elf, loopx_tree, npm, pins, proof, pythons, store
from marathond.staging.loopx import NODE
from tests.support.loopx_env import loopx_wanted
from tests.support.loopx_small import VERSION, hardlinked, node, refused, wheel

OTHER = "0" * 64


def test_a18_a_wheel_with_another_hash_is_refused_by_name(state: Path, wanted_loopx: store.WantedLoopX) -> None:
    assert wanted_loopx.wheel is not None
    held = hashlib.sha256(wanted_loopx.wheel.read_bytes()).hexdigest()
    line = refused(state, replace(wanted_loopx, sha256=OTHER), "integrity")
    assert line == f"loopx-2.1.1-py3-none-any.whl: has sha256 {held}, the configuration pins {OTHER}"


def test_a18_the_same_of_the_package_index(state: Path, wanted_loopx: store.WantedLoopX) -> None:
    """The real pip, and whatever index it is configured with."""
    line = refused(state, replace(wanted_loopx, wheel=None, sha256=OTHER), "integrity")
    assert line == f"loopx-2.1.1-py3-none-any.whl: has sha256 {loopx_wanted().sha256}, the configuration pins {OTHER}"


def test_a_version_that_the_index_does_not_have(state: Path, wanted_loopx: store.WantedLoopX) -> None:
    line = refused(state, replace(wanted_loopx, wheel=None, sha256=OTHER, version="2.1.1.post987"), "pip")
    assert line.startswith("pip could not fetch loopx==2.1.1.post987 (exit 1): ")


def test_c12_a_second_copy_of_loopx_is_refused_by_name(tmp_path: Path, state: Path, wanted_loopx: store.WantedLoopX, python: Path) -> None:
    own = hardlinked(python, tmp_path / "own")
    second = own / "lib" / "python3.11" / "site-packages" / "loopx"
    second.mkdir(parents=True)
    (second / "__init__.py").touch()
    line = refused(state, replace(wanted_loopx, python=str(own)), "copies")
    place = "python/lib/python3.11/site-packages/loopx"
    assert line == f"loopx lies a second time in the tree, at {place}: exactly one copy may be there"


@pytest.mark.parametrize(
    "name", ["loopx-0.5.3.dist-info/METADATA", "loopx.egg-info/PKG-INFO", "__editable___loopx_finder.py", "x/loopx/__init__.py"]
)
def test_c12_whatever_an_installation_leaves_behind_is_a_copy(tmp_path: Path, name: str) -> None:
    packages = tmp_path / loopx_tree.site_packages("python3.11")
    for path in ("loopx/__init__.py", "loopx/parts/loopx/__init__.py", f"loopx-{VERSION}.dist-info/RECORD", name):
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).touch()
    with pytest.raises(StageError, match="exactly one copy") as caught:
        loopx_tree.refuse_second_copy(tmp_path, "python3.11", VERSION)
    assert name.removesuffix("/__init__.py").removesuffix("/METADATA").removesuffix("/PKG-INFO") in str(caught.value)


def test_c12_a_node_that_is_too_old_is_refused_by_name(tmp_path: Path, state: Path, wanted_loopx: store.WantedLoopX) -> None:
    folder = node(tmp_path / "other", "v20.0.0")
    line = refused(state, replace(wanted_loopx, node_folder=folder), "node")
    assert line == f"folder {folder}: is Node 20.0.0, LoopX 2.1.1 needs at least 22.22.3"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("v22.22.2", "is Node 22.22.2, LoopX 2.1.1 needs at least 22.22.3"),
        ("v24.0.0", "is Node 24.0.0, the configuration asks for 22.23.3 (loopx.node_version)"),
        ("hello", "bin/node --version exits 0 and says hello"),
        ("v22.23.3; exit 3", "bin/node --version exits 3 and says v22.23.3"),
    ],
)
def test_c12_what_a_node_may_say(tmp_path: Path, said: str, line: str) -> None:
    program = node(tmp_path / "node", said) / "bin" / "node"
    with pytest.raises(StageError) as caught:
        proof.node(program, tmp_path, "folder n", "22.23.3", proof.LoopXSeen(VERSION, (), (22, 22, 3)))
    assert str(caught.value) == f"folder n: {line}"


def test_a_node_package_with_another_hash_is_refused_by_name(
    state: Path, wanted_loopx: store.WantedLoopX, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same code as codex's (test_npm.py): here only that this package goes through it."""
    seen: list[tuple[npm.Package, str | None]] = []

    def fetched(package: npm.Package, version: str, integrity: str | None, *_: object) -> None:
        seen.append((package, integrity))
        raise StageError("integrity", f"{version} is another")

    monkeypatch.setattr(npm, "fetched", fetched)
    pin = pins.sri("sha512", b"x" * 64)
    assert refused(state, replace(wanted_loopx, node_folder=None, node_integrity=pin), "integrity") == "22.23.3 is another"
    assert seen == [(NODE, pin)]


def test_c12_a_python_without_sqlite3_is_refused(tmp_path: Path, state: Path, wanted_loopx: store.WantedLoopX, python: Path) -> None:
    own = hardlinked(python, tmp_path / "own")
    for library in (own / "lib" / "x86_64-linux-gnu").glob("libsqlite3*"):
        library.unlink()
    next((own / "lib" / "python3.11" / "lib-dynload").glob("_sqlite3*.so")).unlink()
    line = refused(state, replace(wanted_loopx, python=str(own)), "python")
    assert line.startswith(f"loopx.python: {own}: python3.11 has no sqlite3 that works, LoopX keeps its state in it: ModuleNotFoundError")


def test_c12_a_python_on_libraries_of_this_host_cannot_be_moved(
    tmp_path: Path, state: Path, wanted_loopx: store.WantedLoopX, python: Path
) -> None:
    """It would run here, and in no image that lacks them."""
    own = hardlinked(python, tmp_path / "own")
    for library in (own / "lib" / "x86_64-linux-gnu").glob("libsqlite3*"):
        library.unlink()
    line = refused(state, replace(wanted_loopx, python=str(own)), "python")
    assert "libsqlite3.so.0" in line
    # A host with that library runs it and is told so; one without it has no sqlite3 at all.
    assert "cannot be moved: it loads /" in line or "has no sqlite3 that works" in line


def test_c04_a_skill_that_loopx_requires_and_does_not_write(tmp_path: Path, state: Path, wanted_loopx: store.WantedLoopX) -> None:
    (tmp_path / "w").mkdir()
    line = refused(state, replace(wanted_loopx, wheel=wheel(tmp_path / "w", skills="other")), "skills")
    assert line == "loopx 2.1.1 wrote no skill loopx, which it requires of a profile"


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (lambda w, t: replace(w, wheel=t / "absent.whl"), "wheel", "absent.whl: no such file"),
        (lambda w, t: replace(w, wheel=no_wheel(t)), "wheel", "is no wheel: "),
        (lambda w, t: replace(w, wheel=wheel(t, version="2.1.2")), "version", "is loopx 2.1.2, the configuration asks for 2.1.1"),
        (lambda w, t: replace(w, python=str(t / "absent")), "python", "absent: no such folder or archive"),
        (lambda w, t: replace(w, python=str(node(t / "n2"))), "python", "has no bin/python3.NN"),
        (lambda w, t: replace(w, python=str(old_python(t))), "python", "is python3.10, LoopX needs at least python3.11"),
        (lambda w, t: replace(w, python=str(no_wheel(t))), "python", "cannot be unpacked"),
        (lambda w, t: replace(w, node_folder=t / "absent"), "node", "has no bin/node"),
        (lambda w, t: replace(w, python="relative"), "python", "must be an absolute path"),
        (lambda w, t: replace(w, wheel=None), "integrity", "no hash of the wheel is given"),
    ],
)
def test_what_is_not_there_or_something_else_is_one_line(
    tmp_path: Path,
    state: Path,
    wanted_loopx: store.WantedLoopX,
    spoil: Callable[[store.WantedLoopX, Path], store.WantedLoopX],
    code: str,
    words: str,
) -> None:
    folder = tmp_path / "spoilt"
    folder.mkdir()
    assert words in refused(state, spoil(wanted_loopx, folder), code)


def no_wheel(folder: Path) -> Path:
    path = folder / "loopx-2.1.1-py3-none-any.whl"
    path.write_bytes(b"nothing")
    return path


def old_python(folder: Path) -> Path:
    program = folder / "old" / "bin" / "python3.10"
    program.parent.mkdir(parents=True)
    program.touch()
    return folder / "old"


def test_an_archive_writes_nothing_outside_its_folder(tmp_path: Path, state: Path, wanted_loopx: store.WantedLoopX) -> None:
    for number, members in enumerate((["../out"], ["/out"], ["python/link/out"])):
        archive, outside = tmp_path / f"{number}.tar", tmp_path / "outside"
        outside.mkdir(exist_ok=True)
        with tarfile.open(archive, "w") as made:
            link = tarfile.TarInfo("python/link")
            link.type, link.linkname = tarfile.SYMTYPE, str(outside)
            made.addfile(link)
            for name in members:
                made.addfile(tarfile.TarInfo(name))
        refused(state, replace(wanted_loopx, python=str(archive)), "python" if number < 2 else "io")
        assert list(outside.iterdir()) == []


# ---- the parts


@pytest.mark.parametrize(
    "path",
    [
        "share",
        "include",
        "bin/pip",
        "bin/python3",
        "lib/python3.11",
        "lib/pkgconfig",
        "lib/tcl8.6",
        "lib/libpython3.12.a",
        "lib/python3.12/test",
        "lib/python3.12/config-3.12-x86_64-linux-gnu",
        "lib/python3.12/json/__pycache__",
    ],
)
def test_what_is_left_out_of_a_python(path: str) -> None:
    assert pythons.Python(Path("/p"), "python3.12").skips(path)


@pytest.mark.parametrize(
    "path",
    ["bin", "lib", "lib64", "bin/python3.12", "lib/libpython3.12.so.1.0", "lib/python3.12/site-packages/x", "lib/python3.12/json/test"],
)
def test_what_is_kept_of_a_python(path: str) -> None:
    assert not pythons.Python(Path("/p"), "python3.12").skips(path)


def test_the_glibc_that_a_file_needs_is_the_newest_that_it_names(tmp_path: Path) -> None:
    for name, content in {
        "a": b"\x7fELF..\0GLIBC_2.2.5\0GLIBC_2.9\0GLIBC_2.34\0",
        "b": b"\x7fELF..\0GLIBC_PRIVATE\0",
        "c": b"#!/bin/sh\0GLIBC_2.99\0",
    }.items():
        (tmp_path / name).write_bytes(content)
    assert elf.needs_glibc([tmp_path / "a", tmp_path / "b", tmp_path / "c"]) == "2.34"
    assert elf.needs_glibc([tmp_path / "b"]) == ""
