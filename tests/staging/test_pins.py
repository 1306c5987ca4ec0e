"""Which versions and hashes are accepted, and how the configuration says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.service.settings import Settings, load
from marathond.staging import pins

MINIMAL = '[campaign]\nname = "first"\ntasks = ["tasks/*"]\n[arms.nop]\nkind = "nop"\n'
SHA512 = pins.sri("sha512", b"x" * 64)
SHA256 = pins.sri("sha256", b"x" * 32)

Read = Callable[[str], Settings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> Settings:
        (tmp_path / "config.toml").write_text(f"[codex]\n{text}\n{MINIMAL}")
        return load(Path("config.toml"), environ={"HOME": "/home/ana"}, cwd=tmp_path, uid=0)

    return read


@pytest.mark.parametrize("version", ["0.171.0", "0.171.1", "0.172.0-alpha.1", "1.0.0"])
def test_versions_that_are_new_enough(version: str) -> None:
    assert pins.version_problem(version) is None


@pytest.mark.parametrize("version", ["0.170.9", "0.171.0-alpha.9", "0.17.1", "0.99.0"])
def test_older_ones_are_refused(version: str) -> None:
    assert pins.version_problem(version) == "codex must be at least 0.171.0"


@pytest.mark.parametrize("version", ["", "latest", "^0.171.0", "0.171", "0.171.0 ", "v0.171.0", "0.171.0-", "0.171.0/../x"])
def test_no_version(version: str) -> None:
    assert pins.version_problem(version) == "must be one exact version such as 0.171.0"


def test_order_of_versions() -> None:
    ordered = ["0.9.0", "0.171.0-alpha.2", "0.171.0-alpha.10", "0.171.0-beta", "0.171.0", "0.171.1", "1.0.0"]
    for index, version in enumerate(ordered):
        assert [pins.is_older(version, other) for other in ordered] == [index < other for other in range(len(ordered))], version


def test_the_default_is_pinned(read: Read) -> None:
    section = read("").codex
    assert (section.version, section.folder) == ("0.171.0", None)
    assert section.wanted() == pins.Wanted("codex", "0.171.0", pins.KNOWN["0.171.0"], None)
    assert pins.integrity_problem(pins.KNOWN["0.171.0"], from_folder=False) is None


def test_a_folder_starts_at_the_file_and_needs_no_hash(read: Read, tmp_path: Path) -> None:
    assert read('folder = "here"').codex.wanted() == pins.Wanted("codex", "0.171.0", None, tmp_path / "here")
    assert read(f'folder = "/x"\nintegrity = "{SHA256}"').codex.integrity == SHA256


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('version = "0.170.0"', 'config.toml:2: codex.version = "0.170.0": codex must be at least 0.171.0'),
        ('version = "latest"', 'config.toml:2: codex.version = "latest": must be one exact version such as 0.171.0'),
        ("version = 3", "config.toml:2: codex.version = 3: must be text in quotes"),
        ('version = "0.172.0"', "codex.integrity: required for 0.172.0: dist.integrity of @openai/codex@0.172.0-linux-x64"),
        ('integrity = "sha512-AAAA"', "must be the package's hash, sha512- and 64 bytes in base64"),
        (f'integrity = "{SHA256}"', "must be the package's hash, sha512-…"),
        (f'folder = "/x"\nintegrity = "{SHA512}"', "must be the tree's hash as marathonctl stage prints it, sha256-…"),
        ('folder = ""', "codex.folder"),
    ],
)
def test_what_is_wrong_is_one_line(read: Read, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert line in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
