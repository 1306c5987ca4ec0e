"""Staging LoopX: the real one, looked at and tampered with; a small one from each kind of source, the same package each time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from marathond.agents.loopx import profile
from marathond.cli import ctl
from marathond.staging import loopx_tree, store
from marathond.staging.loopx import versions
from marathond.staging.progress import Progress
from tests.support.loopx_env import loopx_wanted
from tests.support.loopx_small import VERSION, WHEEL, refused, wheel
from tests.support.registry import make_tree

# ---- the real one


def test_c04_the_tree_is_whole_and_says_what_it_is(staged_loopx: store.StagedTree) -> None:
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
def test_c12_an_altered_tree_is_found_and_not_used(
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


# ---- small ones (tests/support/loopx_small.py)


def test_a18_staged_at_another_place_and_time_it_is_the_same_package(
    tmp_path: Path, wanted_loopx: store.WantedLoopX, reference: store.StagedTree
) -> None:
    """And once more where it is: nothing is done."""
    state = tmp_path / "a" / "longer" / "place"
    made = store.stage(state, wanted_loopx, lambda _: None)
    assert made.package_id == reference.package_id
    said: list[Progress] = []
    assert store.stage(state, wanted_loopx, said.append) == made
    assert {progress.step for progress in said} == {"verifying"}
    assert stat_modes(made.root) <= {0o755, 0o644}
    assert not processes_that_name(state / "staged"), "LoopX's daemon, which it leaves behind, is ended"


def processes_that_name(folder: Path) -> list[str]:
    lines = (read(entry / "cmdline") for entry in Path("/proc").glob("[0-9]*"))
    return [line for line in lines if str(folder) in line]


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it ended while we looked
        return ""


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


def test_an_archive_is_unpacked_and_is_the_same_package_as_its_folder(
    tmp_path: Path, state: Path, wanted_loopx: store.WantedLoopX, python: Path, reference: store.StagedTree
) -> None:
    archive = tmp_path / "python.tar"
    with tarfile.open(archive, "w") as made:
        made.add(python, "python/install")
    assert store.stage(state, replace(wanted_loopx, python=str(archive)), lambda _: None).package_id == reference.package_id


def test_uv_installs_into_a_folder_of_ours(
    tmp_path: Path,
    state: Path,
    wanted_loopx: store.WantedLoopX,
    python: Path,
    reference: store.StagedTree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No download of uv's can be had everywhere: a script stands for it, which does what its documentation says of these variables."""
    asked = replace(wanted_loopx, python="uv:3.11")
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


def test_a_commit_is_built_and_named(tmp_path: Path, state: Path, wanted_loopx: store.WantedLoopX) -> None:
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
    asked = replace(wanted_loopx, wheel=None, commit=f"{repository}@{sha}")
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


def test_killed_in_the_middle_the_next_one_cleans_up(state: Path, wanted_loopx: store.WantedLoopX) -> None:
    argv = [sys.executable, "-c", CHILD, str(state), str(wanted_loopx.wheel), str(wanted_loopx.node_folder), wanted_loopx.python]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None and child.stdout.readline() == b"there\n"
        child.kill()
    assert len(list((state / "staged").glob("aside-*"))) == 1
    assert store.find(state, wanted_loopx) is None
    said: list[Progress] = []
    made = store.stage(state, wanted_loopx, said.append)
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
