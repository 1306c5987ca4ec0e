"""A small package, packed once by the real npm, and a registry that serves it; a small LoopX and what it is staged as."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.staging import store
from tests.support.codex_env import need_npm
from tests.support.loopx_env import loopx_wanted
from tests.support.loopx_small import cut_down, small
from tests.support.registry import Registry, pack


@pytest.fixture(scope="session")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_npm()
    return pack(tmp_path_factory.mktemp("package"))


@pytest.fixture
def registry(tarball: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Serving; npm in this process and in its children uses it."""
    with Registry(tarball).serving() as serving:
        for name, value in serving.environ().items():
            monkeypatch.setenv(name, value)
        yield serving


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(scope="session")
def python(staged_loopx: store.StagedTree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the real LoopX's Python what staging needs."""
    return cut_down(Path(loopx_wanted().python), tmp_path_factory.mktemp("python") / "py")


@pytest.fixture
def wanted_loopx(tmp_path: Path, python: Path) -> store.WantedLoopX:
    return small(tmp_path, python)


@pytest.fixture(scope="session")
def reference(python: Path, tmp_path_factory: pytest.TempPathFactory) -> store.StagedTree:
    """What all of them come to that are not refused: the same bytes from other places."""
    folder = tmp_path_factory.mktemp("reference")
    return store.stage(folder / "state", small(folder, python), lambda _: None)
