"""The demo's Python: made once, and one clear line where it cannot be made.  That it runs is seen where it is staged."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.demo import portable_python as portable
from marathond.demo.host import SetupError


def test_what_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "python" / f"{portable.SUITE}-{portable._RECIPE}"
    made.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert portable.portable_python(tmp_path) == made


def test_without_apt_it_says_what_it_wanted_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(portable, "_patchelf", lambda _: "patchelf")
    with pytest.raises(SetupError, match=r"packages of Debian's bookworm are needed \(python3.11-minimal .*: not found here"):
        portable.portable_python(tmp_path / "cache")
    assert {path.name for path in (tmp_path / "cache" / "python").iterdir()} == {"lock"}
