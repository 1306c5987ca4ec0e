"""Staging LoopX: the real one once, looked at and tampered with; and each source that is not what it should be, refused by name."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from marathond.agents.loopx import profile
from marathond.cli import ctl
from marathond.core.errors import StageError
from marathond.staging import loopx_tree, npm, pins, proof, store
from marathond.staging.loopx import NODE, versions
from marathond.staging.progress import Progress
from tests.support.loopx_env import loopx_wanted
from tests.support.registry import make_tree

VERSION = "2.1.1"
OTHER = "0" * 64
WHEEL = f"loopx-{VERSION}-py3-none-any.whl"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def refused(state: Path, wanted: store.WantedLoopX, code: str) -> str:
    """The one line; and nothing is left but the lock."""
    with pytest.raises(StageError) as caught:
        store.stage(state, wanted, lambda _: None)
    assert caught.value.code == code, caught.value
    assert "\n" not in str(caught.value)
    assert {path.name for path in (state / "staged").glob("*")} <= {"lock"}
    return str(caught.value)


# ---- the real one


def test_c11_the_tree_is_whole_and_says_what_it_is(staged_loopx: store.StagedTree) -> None:
    root = staged_loopx.root
    assert (staged_loopx.version, staged_loopx.package_id[:12]) == (VERSION, "loopx-2.1.1-")
    store.verify(staged_loopx)
    told = versions(root)
    assert told["loopx"]["wheel_sha256"] == loopx_wanted().sha256
    assert told["node"]["version"] == loopx_wanted().node_version
    assert all(told[part]["glibc"] for part in ("python", "node")), "both need one, and it is written down"
    assert {path.parent.name for path in (root / "codex-home" / "skills").glob("*/SKILL.md")} == set(told["loopx"]["skills"])
    assert not any(any((root / name).iterdir()) for name in profile.FOLDERS), "empty: a trial's own are mounted there"
    assert {"node/include/", "node/share/"} <= set(staged_loopx.dropped)
    assert sorted(loopx_tree.copies(root)) == [
        f"{loopx_tree.site_packages('python3.11')}/{name}" for name in ("loopx", f"loopx-{VERSION}.dist-info")
    ]


def test_its_paths_are_those_that_containers_mount(staged_loopx: store.StagedTree) -> None:
    """The rooms do not know each other; these constants must agree."""
    assert loopx_tree.ROOT == profile.ROOT
    for path in (profile.CLI, profile.PYTHON, profile.NODE, profile.SKILLS, profile.HOME, profile.STATE):
        below = Path(path).relative_to(profile.ROOT)
        assert (staged_loopx.root / below).exists(), below
    config = (staged_loopx.root / loopx_tree.RELEASE / "pyvenv.cfg").read_text()
    assert f"home = {profile.ROOT}/python/bin\n" in config
    assert profile.CODEX_HOME in (staged_loopx.root / "bin" / "loopx").read_text()


def test_nothing_of_the_place_where_it_was_made_is_in_it(staged_loopx: store.StagedTree) -> None:
    """Else another host, or the same an hour later, would make another tree of the same pins."""
    grep = ["grep", "-rlaE", f"{staged_loopx.root.parents[1]}|aside-[0-9a-f]{{12}}", str(staged_loopx.root)]
    found = subprocess.run(grep, check=False, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "")
    skills = staged_loopx.root / "codex-home" / "skills"
    assert json.loads((skills / ".loopx-skill-install.json").read_text())["installed_at"].startswith("1970-")
    assert not (skills / ".loopx-workflow-skills.lock").exists()


def test_every_module_of_loopx_is_compiled_and_whatever_its_time(staged_loopx: store.StagedTree) -> None:
    package = staged_loopx.root / loopx_tree.site_packages("python3.11") / "loopx"
    sources = {path.relative_to(package) for path in package.rglob("*.py")}
    compiled = {path.parent.parent.relative_to(package) / f"{path.name.split('.')[0]}.py" for path in package.rglob("*.pyc")}
    assert compiled == sources
    assert (package / "__pycache__" / "__init__.cpython-311.pyc").read_bytes()[4:8] == b"\x01\0\0\0", "by hash, unchecked"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda root: (root / "codex-home/skills/loopx/SKILL.md").unlink(), "codex-home/skills/loopx/SKILL.md is missing"),
        (lambda root: (root / "home" / "x").touch(), "home/x does not belong there"),
        (lambda root: other_bytes(root / "versions.json"), "versions.json was written to after it was staged"),
        (lambda root: relink(root / "bin" / "loopx", "/bin/true"), "bin/loopx: links to /bin/true, outside the tree"),
    ],
)
def test_an_altered_tree_is_found_and_not_used(
    tmp_path: Path, staged_loopx: store.StagedTree, spoil: Callable[[Path], object], words: str
) -> None:
    """On a copy whose unchanged files are the cache's own."""
    package = tmp_path / "staged" / staged_loopx.package_id
    shutil.copytree(staged_loopx.root.parent, package, symlinks=True, copy_function=os.link)
    assert store.find(tmp_path, loopx_wanted()) is not None
    spoil(package / "tree")
    looked = store.look(tmp_path, loopx_wanted())
    assert looked.tree is None and words in looked.why


def other_bytes(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[::-1])


def relink(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


# ---- small ones: a wheel of the same shape, a Node that is a script, the Python that the tests have


def wheel(folder: Path, *, version: str = VERSION, extra: Mapping[str, str] | None = None, skills: str = "loopx") -> Path:
    """A LoopX that knows what staging asks of it, and nothing else."""
    writes = "\n".join(
        [
            "import json, pathlib, sys",
            'def main():\n    target = pathlib.Path(sys.argv[sys.argv.index("--skills-dir") + 1])',
            f'    (target / "{skills}").mkdir(); (target / "{skills}" / "SKILL.md").write_text("x")',
            '    (target / ".loopx-skill-install.json").write_text(json.dumps({"installed_at": "now"}))',
            '    (target / ".loopx-workflow-skills.lock").touch()',
            'if __name__ == "__main__":\n    main()\n',
        ]
    )
    info = f"loopx-{version}.dist-info"
    files = {
        "loopx/__init__.py": "",
        "loopx/entrypoint.py": writes,
        "loopx/capabilities/benchmark_toolkit/native_codex_profile.py": 'NATIVE_CODEX_PROFILE_REQUIRED_SKILL_IDS = ("loopx",)\n',
        "loopx/control_plane/runtime/node_probe.py": "MINIMUM_NODE_VERSION = (22, 22, 3)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: loopx\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nloopx = loopx.entrypoint:main\n",
        **(extra or {}),
    }
    path = folder / f"loopx-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        rows = [f"{name},sha256={digest(text)},{len(text)}" for name, text in files.items()]
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join([*rows, f"{info}/RECORD,,\n"]))
    return path


def digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def node(folder: Path, said: str = "v22.23.3") -> Path:
    program = folder / "bin" / "node"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho {said}\n")
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def python(staged_loopx: store.StagedTree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python that the real one was staged with, cut down to what the proofs import: most of staging's time is its library."""
    source, small = Path(loopx_wanted().python), tmp_path_factory.mktemp("python") / "py"
    code = "import sys; sys.path.insert(0, sys.argv[1]); "
    code += "import argparse, compileall, email.parser, email.policy, py_compile; "
    code += "import hashlib, importlib.metadata, json, pathlib, runpy, sqlite3, ssl, zlib; "
    code += "print('\\n'.join(m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)))"
    run = [str(source / "bin" / "python3.11"), "-B", "-I", "-c", code, str(source)]
    needed = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    keep = [*needed, *map(str, (source / "lib/python3.11/encodings").glob("*.py"))]
    keep += [str(path) for path in (source / "lib" / "x86_64-linux-gnu").iterdir()] + [str(source / "bin" / "python3.11")]
    for path in {Path(each) for each in keep}:
        target = small / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
    return small


@pytest.fixture
def wanted(tmp_path: Path, python: Path) -> store.WantedLoopX:
    return small(tmp_path, python)


def small(folder: Path, python: Path) -> store.WantedLoopX:
    return store.WantedLoopX(VERSION, None, wheel(folder), None, "22.23.3", None, node(folder / "node"), str(python))


@pytest.fixture(scope="module")
def reference(python: Path, tmp_path_factory: pytest.TempPathFactory) -> store.StagedTree:
    """What all of them come to that are not refused: the same bytes from other places."""
    folder = tmp_path_factory.mktemp("reference")
    return store.stage(folder / "state", small(folder, python), lambda _: None)


def hardlinked(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True, copy_function=os.link)
    return target


def test_a18_staged_at_another_place_and_time_it_is_the_same_package(
    tmp_path: Path, wanted: store.WantedLoopX, reference: store.StagedTree
) -> None:
    """And once more where it is: nothing is done."""
    state = tmp_path / "a" / "longer" / "place"
    made = store.stage(state, wanted, lambda _: None)
    assert made.package_id == reference.package_id
    said: list[Progress] = []
    assert store.stage(state, wanted, said.append) == made
    assert {progress.step for progress in said} == {"verifying"}
    assert stat_modes(made.root) <= {0o755, 0o644}


def stat_modes(root: Path) -> set[int]:
    return {path.stat().st_mode & 0o7777 for path in root.rglob("*") if not path.is_symlink()}


def test_a_local_source_that_was_written_to_does_not_match_what_was_staged(
    tmp_path: Path, python: Path, reference: store.StagedTree
) -> None:
    folder = reference.root.parents[2].parent
    asked = store.WantedLoopX(VERSION, None, folder / WHEEL, None, "22.23.3", None, folder / "node", str(python))
    shutil.copytree(folder / "state" / "staged", tmp_path / "staged", symlinks=True)
    assert store.find(tmp_path, asked) is not None
    program = folder / "node" / "bin" / "node"
    before = program.stat()
    try:
        os.utime(program, ns=(1, 1))
        assert store.find(tmp_path, asked) is None
        assert store.stage(tmp_path, asked, lambda _: None).package_id == reference.package_id, "the same bytes: one tree, one more origin"
        program.rename(folder / "away")
        assert store.find(tmp_path, asked) is not None, "what is gone counts as it was staged"
        (folder / "away").rename(program)
    finally:
        os.utime(program, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_c12_a_wheel_with_another_hash_is_refused_by_name(state: Path, wanted: store.WantedLoopX) -> None:
    assert wanted.wheel is not None
    held = hashlib.sha256(wanted.wheel.read_bytes()).hexdigest()
    line = refused(state, replace(wanted, sha256=OTHER), "integrity")
    assert line == f"loopx-2.1.1-py3-none-any.whl: has sha256 {held}, the configuration pins {OTHER}"


def test_c12_the_same_of_the_package_index(state: Path, wanted: store.WantedLoopX) -> None:
    """The real pip, and whatever index it is configured with."""
    line = refused(state, replace(wanted, wheel=None, sha256=OTHER), "integrity")
    assert line == f"loopx-2.1.1-py3-none-any.whl: has sha256 {loopx_wanted().sha256}, the configuration pins {OTHER}"


def test_a_version_that_the_index_does_not_have(state: Path, wanted: store.WantedLoopX) -> None:
    line = refused(state, replace(wanted, wheel=None, sha256=OTHER, version="2.1.1.post987"), "pip")
    assert line.startswith("pip could not fetch loopx==2.1.1.post987 (exit 1): ")


def test_c05_a_second_copy_of_loopx_is_refused_by_name(tmp_path: Path, state: Path, wanted: store.WantedLoopX, python: Path) -> None:
    own = hardlinked(python, tmp_path / "own")
    second = own / "lib" / "python3.11" / "site-packages" / "loopx"
    second.mkdir(parents=True)
    (second / "__init__.py").touch()
    line = refused(state, replace(wanted, python=str(own)), "copies")
    place = "python/lib/python3.11/site-packages/loopx"
    assert line == f"loopx lies a second time in the tree, at {place}: exactly one copy may be there"


@pytest.mark.parametrize(
    "name", ["loopx-0.5.3.dist-info/METADATA", "loopx.egg-info/PKG-INFO", "__editable___loopx_finder.py", "x/loopx/__init__.py"]
)
def test_c05_whatever_an_installation_leaves_behind_is_a_copy(tmp_path: Path, name: str) -> None:
    packages = tmp_path / loopx_tree.site_packages("python3.11")
    for path in ("loopx/__init__.py", "loopx/parts/loopx/__init__.py", f"loopx-{VERSION}.dist-info/RECORD", name):
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).touch()
    with pytest.raises(StageError, match="exactly one copy") as caught:
        loopx_tree.refuse_second_copy(tmp_path, "python3.11", VERSION)
    assert name.removesuffix("/__init__.py").removesuffix("/METADATA").removesuffix("/PKG-INFO") in str(caught.value)


def test_c04_a_node_that_is_too_old_is_refused_by_name(tmp_path: Path, state: Path, wanted: store.WantedLoopX) -> None:
    folder = node(tmp_path / "other", "v20.0.0")
    line = refused(state, replace(wanted, node_folder=folder), "node")
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
def test_c04_what_a_node_may_say(tmp_path: Path, said: str, line: str) -> None:
    program = node(tmp_path / "node", said) / "bin" / "node"
    with pytest.raises(StageError) as caught:
        proof.node(program, tmp_path, "folder n", "22.23.3", proof.LoopXSeen(VERSION, (), (22, 22, 3)))
    assert str(caught.value) == f"folder n: {line}"


def test_a_node_package_with_another_hash_is_refused_by_name(
    state: Path, wanted: store.WantedLoopX, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same code as codex's (test_npm.py): here only that this package goes through it."""
    seen: list[tuple[npm.Package, str | None]] = []

    def fetched(package: npm.Package, version: str, integrity: str | None, *_: object) -> None:
        seen.append((package, integrity))
        raise StageError("integrity", f"{version} is another")

    monkeypatch.setattr(npm, "fetched", fetched)
    pin = pins.sri("sha512", b"x" * 64)
    assert refused(state, replace(wanted, node_folder=None, node_integrity=pin), "integrity") == "22.23.3 is another"
    assert seen == [(NODE, pin)]


def test_c04_a_python_without_sqlite3_is_refused_by_name(tmp_path: Path, state: Path, wanted: store.WantedLoopX, python: Path) -> None:
    own = hardlinked(python, tmp_path / "own")
    for library in (own / "lib" / "x86_64-linux-gnu").glob("libsqlite3*"):
        library.unlink()
    next((own / "lib" / "python3.11" / "lib-dynload").glob("_sqlite3*.so")).unlink()
    line = refused(state, replace(wanted, python=str(own)), "python")
    assert line.startswith(f"loopx.python: {own}: python3.11 has no sqlite3 that works, LoopX keeps its state in it: ModuleNotFoundError")


def test_c04_a_python_that_needs_this_hosts_libraries_cannot_be_moved(
    tmp_path: Path, state: Path, wanted: store.WantedLoopX, python: Path
) -> None:
    """It would run here, and in no image that lacks them."""
    own = hardlinked(python, tmp_path / "own")
    for library in (own / "lib" / "x86_64-linux-gnu").glob("libsqlite3*"):
        library.unlink()
    line = refused(state, replace(wanted, python=str(own)), "python")
    assert "libsqlite3.so.0" in line
    # A host with that library runs it and is told so; one without it has no sqlite3 at all.
    assert "cannot be moved: it loads /" in line or "has no sqlite3 that works" in line


def test_a_skill_that_loopx_requires_and_does_not_write(tmp_path: Path, state: Path, wanted: store.WantedLoopX) -> None:
    (tmp_path / "w").mkdir()
    line = refused(state, replace(wanted, wheel=wheel(tmp_path / "w", skills="other")), "skills")
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
    wanted: store.WantedLoopX,
    spoil: Callable[[store.WantedLoopX, Path], store.WantedLoopX],
    code: str,
    words: str,
) -> None:
    folder = tmp_path / "spoilt"
    folder.mkdir()
    assert words in refused(state, spoil(wanted, folder), code)


def no_wheel(folder: Path) -> Path:
    path = folder / "loopx-2.1.1-py3-none-any.whl"
    path.write_bytes(b"nothing")
    return path


def old_python(folder: Path) -> Path:
    program = folder / "old" / "bin" / "python3.10"
    program.parent.mkdir(parents=True)
    program.touch()
    return folder / "old"


def test_an_archive_is_unpacked_and_is_the_same_package_as_its_folder(
    tmp_path: Path, state: Path, wanted: store.WantedLoopX, python: Path, reference: store.StagedTree
) -> None:
    archive = tmp_path / "python.tar"
    with tarfile.open(archive, "w") as made:
        made.add(python, "python/install")
    assert store.stage(state, replace(wanted, python=str(archive)), lambda _: None).package_id == reference.package_id


def test_d17_an_archive_writes_nothing_outside_its_folder(tmp_path: Path, state: Path, wanted: store.WantedLoopX) -> None:
    for number, members in enumerate((["../out"], ["/out"], ["python/link/out"])):
        archive, outside = tmp_path / f"{number}.tar", tmp_path / "outside"
        outside.mkdir(exist_ok=True)
        with tarfile.open(archive, "w") as made:
            link = tarfile.TarInfo("python/link")
            link.type, link.linkname = tarfile.SYMTYPE, str(outside)
            made.addfile(link)
            for name in members:
                made.addfile(tarfile.TarInfo(name))
        refused(state, replace(wanted, python=str(archive)), "python" if number < 2 else "io")
        assert list(outside.iterdir()) == []


def test_uv_installs_into_a_folder_of_ours(
    tmp_path: Path,
    state: Path,
    wanted: store.WantedLoopX,
    python: Path,
    reference: store.StagedTree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No download of uv's can be had everywhere: a script stands for it, which does what its documentation says of these variables."""
    asked = replace(wanted, python="uv:3.11")
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if not shutil.which("uv", path="/usr/bin:/bin") else "/nowhere")
    assert refused(state, asked, "uv").startswith("uv is not on PATH, it installs Python 3.11: install it, or set loopx.python")
    program = tmp_path / "uv-bin" / "uv"
    program.parent.mkdir()
    copy = f'mkdir -p "$UV_PYTHON_INSTALL_DIR" && cp -a {python} "$UV_PYTHON_INSTALL_DIR/cpython-3.11.2-linux-x86_64-gnu"'
    program.write_text(f'#!/bin/sh\n[ "$*" = "python install --no-progress 3.11" ] || {{ echo "no such version" >&2; exit 2; }}\n{copy}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    assert store.stage(state, asked, lambda _: None).package_id == reference.package_id
    assert "no such version" in refused(tmp_path / "other", replace(asked, python="uv:3.13"), "uv")


def test_a_commit_is_built_and_named(tmp_path: Path, state: Path, wanted: store.WantedLoopX) -> None:
    """By the real git and pip; the build itself is a back end in the repository, so that nothing has to be fetched for it."""
    repository = tmp_path / "repository"
    repository.mkdir()
    backend = "import pathlib, shutil\ndef build_wheel(directory, settings=None, metadata=None):\n"
    backend += f'    return shutil.copy(pathlib.Path(__file__).with_name("{wheel(repository).name}"), directory).rpartition("/")[2]\n'
    (repository / "backend.py").write_text(backend)
    (repository / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n')
    git = ["git", "-C", str(repository), "-c", "user.name=ana", "-c", "user.email=ana@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    sha = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    asked = replace(wanted, wheel=None, commit=f"{repository}@{sha}")
    made = store.stage(state, asked, lambda _: None)
    assert made.source.startswith(f"commit {repository}@{sha}, node folder ")
    assert versions(made.root)["loopx"] == {"version": VERSION, "commit": asked.commit, "skills": ["loopx"]}
    absent = replace(asked, commit=f"{repository}@{'0' * 40}")
    assert refused(tmp_path / "other", absent, "git").startswith(f"git could not fetch {absent.commit} (exit ")


CHILD = """
import sys
from pathlib import Path
from marathond.staging import store
state, wheel, node, python = sys.argv[1:]
def say(progress):
    if progress.step == "compiling":
        print("there", flush=True)
        sys.stdin.read()
store.stage(Path(state), store.WantedLoopX("2.1.1", None, Path(wheel), None, "22.23.3", None, Path(node), python), say)
"""


def test_e01_killed_in_the_middle_the_next_one_cleans_up(state: Path, wanted: store.WantedLoopX) -> None:
    argv = [sys.executable, "-c", CHILD, str(state), str(wanted.wheel), str(wanted.node_folder), wanted.python]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None and child.stdout.readline() == b"there\n"
        child.kill()
    assert len(list((state / "staged").glob("aside-*"))) == 1
    assert store.find(state, wanted) is None
    said: list[Progress] = []
    made = store.stage(state, wanted, said.append)
    assert any("left by a staging that was killed; removed" in progress.text for progress in said)
    assert {path.name for path in (state / "staged").iterdir()} == {"lock", made.package_id}


def test_stage_stages_all_that_the_arms_need_and_verify_reads_it(
    tmp_path: Path, python: Path, reference: store.StagedTree, capsys: pytest.CaptureFixture[str]
) -> None:
    """LoopX is there already; codex is copied from its folder."""
    folder, staged = reference.root.parents[2].parent, tmp_path / "state" / "staged"
    shutil.copytree(folder / "state" / "staged", staged, symlinks=True)
    make_tree(tmp_path / "codex")
    arm = '[arms.beat]\nkind = "codex"\ndrive = "wake"\nloopx = "generic_cli"\n'
    text = f'[daemon]\nstate_dir = "state"\n[campaign]\nname = "c"\ntasks = ["t"]\n{arm}[codex]\nfolder = "codex"\nmodel = "m"\n'
    text += f'[loopx]\nwheel = "{folder / WHEEL}"\nnode_folder = "{folder / "node"}"\npython = "{python}"\n'
    text += '[gateway.routes.main]\nbase_url = "https://api.example.org/v1"\nkey_file = "/k"\n'
    (tmp_path / "c.toml").write_text(text)

    def run(*options: str) -> tuple[int, str, str]:
        return ctl.run(["--config", str(tmp_path / "c.toml"), "stage", *options]), *capsys.readouterr()

    status, out, err = run("--json")
    assert status == 0, err
    assert [(told["package_id"][:6], told["state"]) for told in json.loads(out)] == [("codex-", "staged"), ("loopx-", "was staged already")]
    assert run("--verify")[0] == 0
    (staged / reference.package_id / "tree" / "versions.json").write_text("{}")
    status, _, err = run("--verify")
    assert status == 1 and "versions.json has 2 bytes" in err
    assert err.endswith("; to stage it: marathonctl stage\n")
