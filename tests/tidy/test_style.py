"""The tools' own rules: ruff, its format, mypy --strict and the import contracts, each as one test with the tool's words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["ruff", "check", "."], id="ruff-check"),
        pytest.param(["ruff", "format", "--check", "."], id="ruff-format"),
        pytest.param(["mypy", "--strict"], id="mypy-strict"),
        pytest.param(["lint-imports"], id="import-linter"),
    ],
)
def test_tool_has_nothing_to_say(argv: list[str]) -> None:
    done = subprocess.run(
        [str(BIN / argv[0]), *argv[1:]], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, f"{' '.join(argv)} exits {done.returncode}\n{done.stdout}{done.stderr}"
