"""Digests pin a task: ours over everything, Harbor's as dataset.toml states it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.core.model import Task, Unrunnable
from marathond.tasks.dataset import harbor_digest
from marathond.tasks.digest import context_digest, scan, task_digest
from marathond.tasks.harbor import read_task


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task whose Harbor digest was computed with Harbor 0.26.0's own Packager (see GOLDEN)."""
    root = tmp_path / "set" / "sum"
    for relative, text in {
        "task.toml": '[task]\nname = "org/sum"\n[environment]\ndocker_image = "debian:12"\n',
        "instruction.md": "Add.\n",
        "README.md": "About.\n",
        "NOTES.md": "not published\n",
        "environment/Dockerfile": "FROM debian:12\n",
        "environment/data/b.txt": "b\n",
        "environment/data-1.txt": "sorts before the folder's files\n",
        "environment/.harborignore": "never published\n",
        "environment/x.pyc": "ignored\n",
        "environment/keep~/file": "ignored, too\n",
        "tests/test.sh": "exit 0\n",
        "tests/__pycache__/test.txt": "ignored\n",
        "solution/solve.sh": "true\n",
    }.items():
        (root / relative).parent.mkdir(parents=True, exist_ok=True)
        (root / relative).write_text(text)
    (root / "tests/link.txt").symlink_to("../environment/data/b.txt")
    (root / "tests/folder").symlink_to("../environment/data")
    (root / "tests/dangling").symlink_to("nothing")
    return root


GOLDEN = "a9089f6ddf39933f355f56fe9a8f4cf724a59a834784bfd412e00fdbec9e2f99"


def pin(root: Path, digest: str, name: str = "org/sum", *, above: int = 1) -> None:
    manifest = root.parents[above - 1] / "dataset.toml"
    manifest.write_text(f'[dataset]\nname = "org/set"\n[[tasks]]\nname = "{name}"\ndigest = "sha256:{digest}"\n')


def why(folder: Path) -> str:
    """Why the task is broken."""
    outcome = read_task(folder)
    assert isinstance(outcome, Unrunnable) and outcome.code == "task_broken"
    return outcome.detail


def test_harbors_digest_is_the_one_harbor_computes(folder: Path) -> None:
    assert harbor_digest(scan(folder)) == GOLDEN


@pytest.mark.parametrize("above", [1, 2])
def test_a_pinned_task_is_checked(folder: Path, above: int) -> None:
    pin(folder, GOLDEN, above=above)
    assert isinstance(read_task(folder), Task)
    (folder / "tests/test.sh").write_text("exit 1\n")
    outcome = read_task(folder)
    assert isinstance(outcome, Unrunnable) and outcome.code == "task_broken"
    assert "dataset.toml: pins sha256:" in outcome.detail and GOLDEN[:12] in outcome.detail


def test_a_manifest_that_names_other_tasks_pins_nothing(folder: Path) -> None:
    pin(folder, "0" * 64, name="org/other")
    assert isinstance(read_task(folder), Task)


def test_a_task_without_a_name_is_pinned_by_its_folder(folder: Path) -> None:
    (folder / "task.toml").write_text('[environment]\ndocker_image = "debian:12"\n')
    pin(folder, "0" * 64, name="any/sum")
    assert "pins sha256:000000000000" in why(folder)


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("[[tasks]\n", "dataset.toml"),
        ('[[tasks]]\nname = "org/sum"\ndigest = "md5:1"\n', "tasks[0].digest"),
        ("tasks = 3\n", "tasks"),
        ("[[tasks]]\nname = 1\n", "tasks[0]"),
    ],
)
def test_a_broken_manifest_is_named(folder: Path, manifest: str, words: str) -> None:
    (folder.parent / "dataset.toml").write_text(manifest)
    assert words in why(folder)


def test_ignore_rules_in_a_pinned_task_are_refused_by_name(folder: Path) -> None:
    (folder / ".gitignore").write_text("*.log\n")
    assert isinstance(read_task(folder), Task)
    pin(folder, GOLDEN)
    assert ".gitignore" in why(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "environment/data/b.txt").write_text("B\n"),
        lambda root: (root / "tests/test.sh").chmod(0o755),
        lambda root: (root / "environment/data/b.txt").rename(root / "environment/data/c.txt"),
        lambda root: (root / "environment/empty").mkdir(),
        lambda root: (root / ".hidden").write_text(""),
        lambda root: ((root / "tests/dangling").unlink(), (root / "tests/dangling").symlink_to("other")),
        lambda root: ((root / "tests/dangling").unlink(), (root / "tests/dangling").write_text("nothing")),
    ],
)
def test_every_change_changes_our_digest(folder: Path, change: Callable[[Path], object]) -> None:
    before = task_digest(folder)
    assert task_digest(folder) == before
    change(folder)
    assert task_digest(folder) != before


def test_the_context_digest_knows_the_environment_only(folder: Path, tmp_path: Path) -> None:
    before = context_digest(folder)
    (folder / "tests/test.sh").write_text("exit 1\n")
    folder.rename(tmp_path / "moved")
    assert context_digest(tmp_path / "moved") == before
    (tmp_path / "moved/environment/Dockerfile").write_text("FROM debian:13\n")
    assert context_digest(tmp_path / "moved") != before


def test_modification_times_do_not_matter(folder: Path) -> None:
    before = task_digest(folder)
    os.utime(folder / "instruction.md", (1, 1))
    assert task_digest(folder) == before


def test_bytes_cannot_move_between_names_and_contents(tmp_path: Path) -> None:
    for name, files in {"one": {"ab": "c"}, "two": {"a": "bc"}, "three": {"a": "b", "c": ""}}.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    assert len({task_digest(tmp_path / name) for name in ("one", "two", "three")}) == 3


def test_file_names_that_are_not_utf8(folder: Path) -> None:
    before = task_digest(folder)
    (folder / os.fsdecode(b"environment/\xff")).write_text("x")
    assert task_digest(folder) != before
    with pytest.raises(ConfigError, match="UTF-8"):
        harbor_digest(scan(folder))


def test_a_file_that_cannot_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: object, flags: int, *args: int, **kwargs: int) -> int:
        if str(path).endswith("b.txt"):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ConfigError, match=r"b\.txt: cannot be read: Permission denied"):
        task_digest(folder)
