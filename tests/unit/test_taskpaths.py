"""From patterns to task folders: each once, by name, and nothing that fits nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.service.settings import load
from marathond.service.taskpaths import task_folders


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder whose own name is a pattern, which must not matter."""
    room = tmp_path / "a[1]*"
    for name in ("tasks/one", "tasks/two", "more/three", "again/two", "tasks/.hidden"):
        (room / name).mkdir(parents=True)
    for name in ("suite/four", "suite/no-toml", "suite/four/tests"):
        (room / name).mkdir(parents=True)
    (room / "suite/four/task.toml").touch()
    (room / "tasks/README.md").write_text("no folder")
    return room


def _names(room: Path, campaign: str) -> list[str]:
    (room / "marathond.toml").write_text(f'[campaign]\nname = "c"\n{campaign}\n[arms.nop]\nkind = "nop"\n')
    folders = task_folders(load(environ={"HOME": "/"}, cwd=room, uid=0))
    assert all(folder.is_absolute() for folder in folders)
    return [str(folder.relative_to(room)) for folder in folders]


@pytest.mark.parametrize(
    ("campaign", "names"),
    [
        ('tasks = ["tasks/*"]', ["tasks/one", "tasks/two"]),
        ('tasks = ["tasks/*", "tasks/one", "./tasks/../tasks/two"]', ["tasks/one", "tasks/two"]),
        ('tasks = ["tasks"]', ["tasks"]),
        ('tasks = ["suite"]', ["suite/four", "suite/no-toml"]),
        ('tasks = ["suite/four"]', ["suite/four"]),
        ('tasks = ["more/*", "tasks/o??"]', ["tasks/one", "more/three"]),
        ('tasks = ["*/*"]\nexclude = ["two"]', None),
        ('tasks = ["tasks/*", "more/three"]\nexclude = ["two"]', ["tasks/one", "more/three"]),
        ('tasks = ["tasks/*"]\ninclude = ["two"]', ["tasks/two"]),
    ],
)
def test_which_folders(room: Path, campaign: str, names: list[str] | None) -> None:
    if names is None:
        with pytest.raises(ConfigError, match="has the same name as"):
            _names(room, campaign)
    else:
        assert _names(room, campaign) == names


def test_f06_a_folder_that_is_not_there_is_listed_so_that_its_cells_park(tmp_path: Path) -> None:
    assert _names(tmp_path, 'tasks = ["tasks/gone"]') == ["tasks/gone"]


@pytest.mark.parametrize(
    ("campaign", "line"),
    [
        ('tasks = ["tasks/*", "taks/*"]', "marathond.toml:3: campaign.tasks[1] = "),
        ('tasks = ["taks/*"]', "matches no folder"),
        ('tasks = ["tasks/README.m*"]', "matches no folder"),
        (
            'tasks = ["tasks/*"]\ninclude = ["one", "tow"]',
            'marathond.toml:4: campaign.include[1] = "tow": no such task; did you mean two?',
        ),
        ('tasks = ["tasks/*"]\nexclude = ["three"]', 'marathond.toml:4: campaign.exclude[0] = "three": no such task'),
        ('tasks = ["tasks/one"]\nexclude = ["one"]', "marathond.toml:4: campaign: no task is left"),
        ('tasks = ["tasks/two", "again/two"]', "has the same name as"),
    ],
)
def test_what_fits_nothing_is_refused_by_its_line(room: Path, campaign: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _names(room, campaign)
    assert line in str(caught.value)
