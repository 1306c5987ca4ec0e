"""The borrowed Harbor works: its models import, and its viewer answers on the loopback."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.support.harbor_env import VERSION, harbor_view, run_harbor_python

pytestmark = pytest.mark.usefixtures("harbor")


def test_models_import_and_say_their_version() -> None:
    script = (
        "import importlib.metadata, sys, harbor.models.job.result as job, harbor.models.trial.result as trial\n"
        "new = sys.version_info >= (3, 12)\n"
        "print(importlib.metadata.version('harbor'), new, job.JobResult.__name__, trial.TrialResult.__name__, sys.argv[1])"
    )
    done = run_harbor_python(script, "argument")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [VERSION, "True", "JobResult", "TrialResult", "argument"]


def test_a_failing_script_is_seen() -> None:
    done = run_harbor_python("raise SystemExit(3)")
    assert done.returncode == 3


def test_viewer_answers_on_the_loopback(tmp_path: Path) -> None:
    with harbor_view(tmp_path) as url:
        with urllib.request.urlopen(f"{url}/api/health", timeout=240) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(f"{url}/api/jobs", timeout=240) as answer:
            assert json.load(answer)["total"] == 0
