"""The paths that archives and ``sizes`` name: each thing's own, as whoever looks for it years later would type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.kept import Kept, make_kept

from marathond.cli import archive as command


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return make_kept(tmp_path)


def test_an_archives_path_stands_in_the_ledger_without_dots_unless_they_lead_elsewhere(kept: Kept) -> None:
    (kept.root / "arch").mkdir()
    said = kept.ctl("archive", "t0001", "--to", str(kept.root / "out" / ".." / "arch"))
    assert said.code == 0, said.err
    assert [row["file"] for row in kept.rows("SELECT file FROM archive")] == [str(kept.root / "arch" / "x" / kept.file("zstd").name)]
    assert "archived before" in kept.ctl("archive", "t0001", "--to", str(kept.root / "arch")).out
    far = kept.root / "far" / "deep"
    (far.parent / "arch").mkdir(parents=True)
    far.mkdir()
    (kept.root / "link").symlink_to(far)
    beside = kept.root / "link" / ".." / "arch"  # through the link: far/arch
    assert kept.ctl("archive", "t0001", "--to", str(beside)).code == 0
    assert (far.parent / "arch" / "x" / kept.file("zstd").name).is_file()


def test_an_archive_of_an_earlier_version_is_found_by_its_path_with_dots(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(command, "plain", lambda to: to)
        assert kept.ctl("archive", "t0001", "--to", str(kept.to / ".." / kept.to.name)).code == 0
    assert ".." in kept.rows("SELECT file FROM archive")[0]["file"]
    assert "archived before" in kept.archive("t0001").out


def test_the_wal_has_a_place_of_its_own(kept: Kept) -> None:
    found = {size["kind"]: size["place"] for size in json.loads(kept.ctl("sizes", "--json").out)["sizes"]}
    assert (found["ledger"], found["WAL"]) == (str(kept.ledger), f"{kept.ledger}-wal")
