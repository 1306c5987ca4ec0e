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


def _refused(room: Path, campaign: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _names(room, campaign)
    return str(caught.value).splitlines()


MANY = ", ".join(f'"task-{n}"' for n in range(20))


def test_a_list_of_which_nothing_fits_is_one_line_with_a_few_near_names(room: Path) -> None:
    assert _refused(room, f'tasks = ["tasks/*", "more/*"]\ninclude = [{MANY}]') == [
        "marathond.toml:4: campaign.include: none of its 20 names is a task (task-0, task-1, task-2, task-3, task-4 and 15 more); "
        "there are one, three, two"
    ]
    for n in range(7):
        (room / f"tasks/tasc-{n}").mkdir()
    (line,) = _refused(room, f'tasks = ["tasks/*"]\ninclude = [{MANY}]')
    near = line.partition("; near names: ")[2].split(", ")
    assert len(near) == 5 and all(name.startswith("tasc-") for name in near)
    (line,) = _refused(room, f'tasks = ["tasks/*"]\ninclude = ["one"]\nexclude = ["two", {MANY}]')
    assert line.startswith("marathond.toml:5: campaign.exclude: 20 of its 21 names are no tasks (task-0, ")


def test_a_few_wrong_names_keep_their_lines(room: Path) -> None:
    assert _refused(room, 'tasks = ["tasks/*"]\ninclude = ["one", "tow", "on"]') == [
        'marathond.toml:4: campaign.include[1] = "tow": no such task; did you mean two?',
        'marathond.toml:4: campaign.include[2] = "on": no such task; did you mean one?',
    ]


def test_a_pattern_that_matches_nothing_is_not_told_again_for_each_name(room: Path) -> None:
    rest = f'include = [{MANY}]\nexclude = ["one"]\n[verifier]\nexclusive = ["one"]\n[scores.two]\nreward = "a.json:b"'
    (line,) = _refused(room, f'tasks = ["taks/*"]\n{rest}')
    assert line.startswith("marathond.toml:3: campaign.tasks[0] = ") and line.endswith(f"matches no folder; near names in {room}: tasks")
    (line,) = _refused(room, 'tasks = ["tasks/onne*"]')
    assert line.endswith(f"matches no folder; near names in {room / 'tasks'}: one")
    (line,) = _refused(room, 'tasks = ["suite/*/nothing-*"]')
    assert line.endswith(f"matches no folder; there are in {room / 'suite'} four, no-toml")
    (room / "empty").mkdir()
    assert _refused(room, 'tasks = ["empty/*"]')[0].endswith("matches no folder")
