"""A small package, packed once by the real npm, and a registry that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.codex_env import need_npm
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
