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
    for name in ("suite/four", "suite/no-toml", "suite/four/tests", "mount"):
        (room / name).mkdir(parents=True)
    for name in ("suite/four", "more/three", "tasks/one", "tasks/two", "again/two"):
        (room / name / "task.toml").touch()
    (room / "tasks/README.md").write_text("no folder")
    return room


def _names(room: Path, campaign: str, begun: dict[str, str] | None = None) -> list[str]:
    """:param begun: tasks that the ledger knows of the campaign to their folders, below the room."""
    (room / "marathond.toml").write_text(f'[campaign]\nname = "c"\n{campaign}\n[arms.nop]\nkind = "nop"\n')
    known = None if begun is None else {name: str(room / folder) for name, folder in begun.items()}
    folders = task_folders(load(environ={"HOME": "/"}, cwd=room, uid=0), begun=known)
    assert all(folder.is_absolute() for folder in folders)
    return [str(folder.relative_to(room)) for folder in folders]


@pytest.mark.parametrize(
    ("campaign", "names"),
    [
        ('tasks = ["tasks/*"]', ["tasks/one", "tasks/two"]),
        ('tasks = ["tasks/*", "tasks/one", "./tasks/../tasks/two"]', ["tasks/one", "tasks/two"]),
        ('tasks = ["tasks"]', ["tasks/one", "tasks/two"]),
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


@pytest.mark.parametrize(
    ("campaign", "begun"),
    [
        ('tasks = ["suite/four", "tasks/gone"]', {"gone": "tasks/gone"}),
        ('tasks = ["suite/four", "moved/gone"]', {"gone": "tasks/gone"}),
        ('tasks = ["suite/four", "disk"]', {"gone": "disk/gone", "lost": "disk/lost", "elsewhere": "other/elsewhere"}),
        ('tasks = ["suite/four", "disk/*"]', {"gone": "disk/gone", "lost": "disk/lost", "deeper": "disk/one/deeper"}),
        ('tasks = ["suite/four", "mount"]', {"gone": "mount/gone"}),
    ],
    ids=["a task", "a task that had another place", "a folder of tasks", "a pattern", "a mount point without its disk"],
)
def test_f06_what_a_campaign_knows_already_is_listed_without_its_folder_so_that_its_cells_park(
    room: Path, campaign: str, begun: dict[str, str]
) -> None:
    found = _names(room, campaign, {"four": "suite/four", **begun})
    gone = [folder for name, folder in begun.items() if name in ("gone", "lost")]
    assert found == ["suite/four", *(folder if campaign.find("moved") < 0 else "moved/gone" for folder in gone)]
    with pytest.raises(ConfigError, match=r"campaign\.tasks\[1\]"):
        _names(room, campaign)  # a submission


def test_a_task_that_no_campaign_knows_is_refused_at_a_later_start_too(room: Path) -> None:
    """Its cells would be the campaign's for ever."""
    with pytest.raises(ConfigError, match=r"campaign\.tasks\[1\] = "):
        _names(room, 'tasks = ["suite/four", "suite/fuor"]', {"four": "suite/four"})


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


def test_a_literal_path_that_is_no_task_is_refused_as_a_pattern_is(tmp_path: Path) -> None:
    for name in ("tasks/four", "tasks/five", "empty", "bare/one", "bare/two"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("four", "five"):
        (tmp_path / "tasks" / name / "task.toml").touch()
    (tmp_path / "tasks/README.md").touch()

    def said(path: str) -> str:
        (line,) = _refused(tmp_path, f'tasks = ["tasks/four", "{path}"]')
        head, _, words = line.partition('": ')
        assert head == f'marathond.toml:3: campaign.tasks[1] = "{tmp_path / path}'
        return words

    assert said("tasks/fuor") == f"no such folder; near names in {tmp_path / 'tasks'}: four"
    assert said("taks/four") == f"no such folder; near names in {tmp_path}: tasks"
    assert said("tasks/nope") == f"no such folder; there are in {tmp_path / 'tasks'} five, four"
    assert said("tasks/README.md") == f"is no folder; there are in {tmp_path / 'tasks'} five, four"
    assert said("empty") == "holds no task.toml, and no folder that does"
    assert said("bare") == "holds no task.toml, and no folder that does; there are in it one, two"
    assert _names(tmp_path, 'tasks = ["bare/*"]') == ["bare/one", "bare/two"]  # parks, each named: not passed over


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
