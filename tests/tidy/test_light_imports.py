"""Only a report pays for statistics and layout: who counts cells or runs trials never loads numpy, scipy or jinja2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOWHERE = {
    **os.environ,
    "MARATHOND_CONFIG": "",
    "HOME": "/nowhere",
    "XDG_STATE_HOME": "/nowhere",
    "MARATHOND_DAEMON__STATE_DIR": "/nowhere",
}


def loaded_by(statement: str) -> set[str]:
    """Top packages, and ours by name, of a fresh interpreter after ``statement``."""
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=NOWHERE, capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    return {module.partition(".")[0] for module in modules} | {module for module in modules if module.startswith("marathond.")}


STATUS = "from marathond.cli import ctl; ctl.run(['status'])"
"""Somebody types it where there is no ledger, and is told so."""


@pytest.mark.parametrize(
    "statement",
    [
        "import marathond.cli.status",
        "import marathond.cli.grammar",
        STATUS,
        "import marathond.service.daemon",
        "import marathond.cli.daemon",
        "import marathond.gateway.__main__",
        "import marathond.core.compare, marathond.core.compare.result, marathond.ledger.verbs.results",
    ],
    ids=["status", "every command", "marathonctl status", "daemon", "marathond", "gateway", "shapes"],
)
def test_who_does_no_statistics_loads_none_of_it(statement: str) -> None:
    assert not loaded_by(statement) & {"numpy", "scipy", "jinja2", "prometheus_client", "textual"}


def test_the_command_that_is_looked_at_really_runs() -> None:
    assert "marathond.cli.status" in loaded_by(STATUS)


def test_status_loads_no_more_of_the_house_than_it_shows() -> None:
    """Two thirds of its time are imports, most of that the classes of what it does not use."""
    heavy = {"core.model", "core.results", "ledger.migrate", "ledger.lock", "ledger.open", "ledger.verbs.networks", "service.protocol"}
    loaded = loaded_by(STATUS)
    assert not loaded & {f"marathond.{name}" for name in heavy} and not loaded & {
        "socket",
        "typer",
        "rich",
        "pydantic",
        "anyio",
        "aiosqlite",
    }


def test_the_look_at_what_is_loaded_can_see_it() -> None:
    assert {"numpy", "scipy"} <= loaded_by("import marathond.core.compare.whole")


def test_the_comparison_needs_no_more_of_scipy_than_its_functions() -> None:
    """scipy.stats takes longer to load than everything here to compute."""
    code = "import sys, marathond.core.compare.whole\nprint([name for name in sys.modules if name.startswith('scipy.stats')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
