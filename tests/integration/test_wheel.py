"""A wheel of what is committed: it holds every file of the package and what lies beside it, and works where there is no checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.cli.explain import known
from tests.conftest import IN_CI

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600.0
NO_BACKEND = ("No matching distribution found for hatchling", "Could not find a version that satisfies the requirement hatchling")

READS = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import marathond
from marathond.agents.codex.contract import FOLDER
from marathond.agents.codex.receipt import SCHEMA_FILE
from marathond.demo.rehearsals import SCRIPT
from marathond.ledger.migrate import load_migrations
from marathond.report import html
from marathond.service.benchmark import SHIPPED
from marathond.service.page import render
render.warm()
print(json.dumps({
    "package": str(Path(marathond.__file__).parent),
    "migrations": [migration.number for migration in load_migrations()],
    "contracts": len(list(FOLDER.glob("*.json"))), "benchmarks": sorted(path.name for path in SHIPPED.glob("*.toml")),
    "templates": len(render._environment().list_templates()), "build": render.build(),
    "receipt": json.loads(SCHEMA_FILE.read_bytes())["type"], "practice": SCRIPT.read_text() != "",
    "report": sorted(path.name for path in html.TEMPLATES.iterdir()),
}))
"""
COMMAND = "import sys; sys.path.insert(0, sys.argv.pop(1)); from marathond.cli.ctl import main; main()"


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The newest commit's files."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout: nobody can tell what is committed")
    folder = tmp_path_factory.mktemp("committed")
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], stdout=subprocess.PIPE, timeout=LIMIT_S, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, timeout=LIMIT_S, check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def wheel(committed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `pip install` builds it.  Where pip cannot have the build's own needs: a failure in CI, skipped elsewhere."""
    folder = tmp_path_factory.mktemp("wheel")
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check", "-w", str(folder), str(committed)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode and any(words in done.stderr for words in NO_BACKEND) and not IN_CI:
        pytest.skip("pip cannot have hatchling here")
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("marathond-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that it is unpacked to; far from any checkout."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def expected(committed: Path) -> dict[str, Path]:
    """Name in the wheel to committed file: the package whole, and what the build puts into it from beside it."""
    included = tomllib.loads((committed / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    places = {"marathond": "marathond", **included}
    found: dict[str, Path] = {}
    for source, target in places.items():
        whole = committed / source
        assert whole.exists(), source
        files = [whole] if whole.is_file() else [path for path in whole.rglob("*") if path.is_file()]
        found |= {str(Path(target) / path.relative_to(whole)) if path != whole else target: path for path in files}
    return found


def test_every_file_of_the_package_is_in_it_unchanged(committed: Path, wheel: Path) -> None:
    files = expected(committed)
    assert len(files) > 500 and {Path(name).suffix for name in files} >= {".py", ".sql", ".toml", ".j2", ".css", ".js", ".json", ".service"}
    with zipfile.ZipFile(wheel) as archive:
        there = {name: archive.getinfo(name) for name in archive.namelist() if ".dist-info/" not in name}
        assert sorted(set(files) - set(there)) == [] and sorted(set(there) - set(files)) == []
        assert [name for name, path in files.items() if archive.read(name) != path.read_bytes()] == []
        # pip keeps this one bit of a file's mode: scripts of the samples are run as they lie there.
        runs = {name: bool(there[name].external_attr >> 16 & 0o100) for name in files}
    assert {name for name, path in files.items() if os.access(path, os.X_OK)} == {name for name, whether in runs.items() if whether}


def test_what_is_read_at_run_time_is_found_in_it(committed: Path, installed: Path, tmp_path: Path) -> None:
    found = json.loads(run(installed, tmp_path, READS))
    package = committed / "marathond"
    assert found["package"] == str(installed / "marathond")
    assert len(found["migrations"]) == len(list((committed / "migrations").glob("*.sql"))) > 0
    assert found["benchmarks"] == sorted(path.name for path in (package / "benchmarks").glob("*.toml")) != []
    assert found["contracts"] == len(list((package / "agents/codex/contracts").glob("*.json"))) > 0
    assert found["templates"] == len(list((package / "service/page/templates").iterdir())) > 0 and found["build"]
    assert found["report"] == sorted(path.name for path in (package / "report/templates").iterdir())
    assert found["receipt"] == "object" and found["practice"]


def test_its_commands_need_no_checkout(installed: Path, tmp_path: Path) -> None:
    """docs/ is for people, in no wheel, and read by nothing: ``explain`` has the runbook's words of its own."""
    listed = json.loads(run(installed, tmp_path, COMMAND, "explain", "--json"))
    assert [(each["kind"], each["code"]) for each in listed] == [(each.kind, each.code) for each in known()]
    assert "means:" in run(installed, tmp_path, COMMAND, "explain", "page_broken")
    assert "$schema" in json.loads(run(installed, tmp_path, COMMAND, "schema", "config"))
    config = tmp_path / "marathond.toml"
    shutil.copy(installed / "marathond" / "config.example.toml", config)
    shown = json.loads(run(installed, tmp_path, COMMAND, "config", "show", "--json", "--config", str(config)))
    assert shown and not (installed / "docs").exists()


def run(installed: Path, cwd: Path, code: str, *argv: str) -> str:
    """A Python that has the project's needs, and the unpacked wheel before any other marathond; its output."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MARATHOND_"))}
    done = subprocess.run(
        [sys.executable, "-c", code, str(installed), *argv],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
