"""From patterns to task folders: each once, by name, and nothing that fits nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.service.settings import Settings, load
from marathond.service.taskpaths import left_out, task_folders


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


def _settings(room: Path, campaign: str) -> Settings:
    (room / "marathond.toml").write_text(f'[campaign]\nname = "c"\n{campaign}\n[arms.nop]\nkind = "nop"\n')
    return load(environ={"HOME": "/"}, cwd=room, uid=0)


def _names(room: Path, campaign: str, begun: dict[str, str] | None = None, known: dict[str, str] | None = None) -> list[str]:
    """:param begun: tasks that the ledger knows of the campaign to their folders, below the room; ``known``: the same, at a submission."""
    folders = task_folders(_settings(room, campaign), begun=_below(room, begun), known=_below(room, known))
    assert all(folder.is_absolute() for folder in folders)
    return [str(folder.relative_to(room)) for folder in folders]


def _below(room: Path, tasks: dict[str, str] | None) -> dict[str, str] | None:
    return None if tasks is None else {name: str(room / folder) for name, folder in tasks.items()}


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
        ('tasks = ["suite/four", "disk/*/gone"]', {"gone": "disk/any/gone", "elsewhere": "disk/any/elsewhere"}),
    ],
    ids=["a task", "a task that had another place", "a folder of tasks", "a pattern", "a mount point without its disk", "a pattern's name"],
)
def test_f06_what_a_campaign_knows_already_is_listed_without_its_folder_so_that_its_cells_park(
    room: Path, campaign: str, begun: dict[str, str]
) -> None:
    known = {"four": "suite/four", **begun}
    gone = [folder for name, folder in begun.items() if name in ("gone", "lost")]
    wanted = ["suite/four", *(folder if campaign.find("moved") < 0 else "moved/gone" for folder in gone)]
    assert _names(room, campaign, begun=known) == wanted
    assert _names(room, campaign, known=known) == wanted, "nor does a submission wait for a disk: an arm can be added meanwhile"
    with pytest.raises(ConfigError, match=r"campaign\.tasks\[1\]"):
        _names(room, campaign)  # of another campaign


@pytest.mark.parametrize(
    ("campaign", "left", "said"),
    [
        ('tasks = ["suite/four", "to-come/five"]', ["suite/four"], ["campaign.tasks[1] = "]),
        ('tasks = ["suite/four", "to-come/*"]', ["suite/four"], ["campaign.tasks[1] = "]),
        ('tasks = ["to-come"]\ninclude = ["five"]', [], ["campaign.tasks[0] = "]),
        ('tasks = ["suite", "to-come/five"]\ninclude = ["five"]', [], ["campaign.tasks[1] = ", "campaign.include[0] = "]),
        ('tasks = ["suite/four"]\nexclude = ["four"]', [], ["campaign: no task is left"]),
    ],
)
def test_f06_what_neither_the_disk_nor_the_ledger_knows_is_left_out_by_a_start_that_goes_on_and_refused_by_a_submission(
    room: Path, campaign: str, left: list[str], said: list[str]
) -> None:
    """A disk to come, named before it is there: the daemon is not started again after such a refusal, and its agents run."""
    four = {"four": "suite/four"}
    assert _names(room, campaign, begun=four) == left
    lines = list(map(str, left_out(_settings(room, campaign), _below(room, four) or {})))
    assert len(lines) == len(said) and all(part in line for part, line in zip(said, lines, strict=True))
    assert _refused(room, campaign, four) == lines, "a submission refuses it in the same words"


def test_a_name_that_the_ledger_knows_is_no_typing_error_while_its_folder_is_away(room: Path) -> None:
    campaign = 'tasks = ["tasks/*"]\ninclude = ["one", "away"]\n[scores.away]\nreward = "a.json:b"'
    assert _names(room, campaign, known={"away": "tasks/away"}) == ["tasks/one"]
    assert "campaign.include[1]" in _refused(room, campaign)[0]


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


def _refused(room: Path, campaign: str, known: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        _names(room, campaign, known=known)
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
