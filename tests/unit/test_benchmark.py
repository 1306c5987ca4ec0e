"""Benchmark profiles: the files that ship, the form of one's own, and where a profile stands among the settings' layers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from marathond.core.benchmark import NOT_RUN, UNSEEN, Known, KnownTask, Mark, Support, limits_differ, marks_differ, names_differ
from marathond.core.errors import ConfigError
from marathond.core.model import Task, Unrunnable
from marathond.core.names import AfterAgent, NetworkPolicy
from marathond.service import benchmark
from marathond.service.settings import Settings, load, origins
from marathond.service.settings_errors import ConfigErrors
from marathond.service.submission import config_json
from marathond.service.taskread import read_tasks
from marathond.service.treatment import campaign_treatment, treatment_hash
from marathond.tasks.harbor import look
from tests.support.benchmarks import known, make_benchmark, mend
from tests.support.rig import make_task

CONFIG = '[campaign]\nname = "c"\ntasks = ["tasks/*"]\n{}\n[arms.nop]\nkind = "nop"\n'
MINE = """format = 1
name = "mine"
network_default = "no-network"
after_agent = "kill-all"
[timeouts]
verifier_multiplier = 3
[scores.reward]
exists = true
[scores.partial]
exists = false
note = "yes or no"
[scores.test_rate]
exists = true
"""
Load = Callable[..., Settings]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    def load_it(campaign: str = "", rest: str = "", **environ: str) -> Settings:
        (tmp_path / "config.toml").write_text(CONFIG.format(campaign) + rest)
        return load(Path("config.toml"), environ=environ, cwd=tmp_path, uid=0)

    return load_it


def said(call: Callable[[], object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value).split("\n")


# ── the profiles that ship ──


def test_the_profiles_that_ship() -> None:
    assert benchmark.shipped() == ("harbor", "swe-marathon", "terminal-bench")
    for name in benchmark.shipped():
        profile = known(name).profile
        assert profile.name == name and profile.scores.reward.exists
        assert (profile.after_agent, profile.network_default) == (AfterAgent.KEEP_DETACHED, "public")  # b17: Harbor's own
        assert profile.scores.test_rate.exists
    assert known("harbor").profile.tasks == {}


def test_d11_a_benchmark_without_partial_scores_says_why() -> None:
    column = known("terminal-bench").profile.scores.partial
    assert not column.exists and column.note == "its verifiers write 0 or 1 and nothing between"
    assert known().profile.scores.partial.exists


def test_swe_marathons_twenty_tasks_with_their_marks() -> None:
    tasks = known().profile.tasks
    assert len(tasks) == 20 and list(tasks) == sorted(tasks)
    marked = {mark: [name for name, task in tasks.items() if mark in task.marks] for mark in Mark}
    assert marked[Mark.GPU] == ["embedding-eval", "jax-pytorch-rewrite", "parameter-golf", "trimul-cuda"]
    assert marked[Mark.UX_STAGE] == ["excel-clone", "mastodon-clone", "s3-clone", "slack-clone"]
    assert len(marked[Mark.OFFLINE]) == 6
    assert (tasks["jax-pytorch-rewrite"].cpus, tasks["ruby-rust-port"].memory_gb, tasks["zstd-decoder"].agent_s) == (8, 24, 18000)
    assert all(task.agent_s and task.verifier_s and task.build_s for task in tasks.values())


@pytest.mark.parametrize("mark", sorted(set(Mark) - UNSEEN))
def test_what_is_called_not_run_parks_by_its_folder_and_nothing_else_does(tmp_path: Path, mark: Mark) -> None:
    """The vocabulary and the task reader must say the same."""
    folder = make_task(tmp_path, "t", network="public")
    match mark:
        case Mark.GPU:
            mend(folder, "[environment]\n", "[environment]\ngpus = 1\n")
        case Mark.OFFLINE:
            mend(folder, '"public"', '"no-network"')
        case Mark.SEPARATE_VERIFIER:
            mend(folder, "[verifier]\n", '[verifier]\nenvironment_mode = "separate"\n')
        case Mark.VERIFIER_IMAGE:
            (folder / "tests/Dockerfile").write_text("FROM scratch\n")
        case Mark.MULTI_STEP:
            (folder / "steps").mkdir()
        case _:
            (folder / "environment").mkdir()
            (folder / "environment/docker-compose.yaml").write_text("services: {}\n")
    seen = look(folder)
    assert seen.marks == {mark} and seen.digest is not None
    assert isinstance(seen.outcome, Unrunnable) == (mark in NOT_RUN)
    assert not isinstance(seen.outcome, Unrunnable) or seen.outcome.code == "task_unsupported"


def test_a_folder_that_cannot_be_read_shows_no_marks(tmp_path: Path) -> None:
    folder = make_task(tmp_path, "t")
    (folder / "task.toml").write_text("[agent\n")
    assert look(folder).marks is None and look(folder).digest is not None
    assert look(tmp_path / "gone").digest is None


# ── its place among the layers ──


def test_a_profile_is_stronger_than_defaults_and_weaker_than_every_key(read: Load) -> None:
    settings = read('benchmark = "swe-marathon"', "[limits]\nagent_timeout_multiplier = 2.0\n", MARATHOND_LIMITS__AFTER_AGENT="kill-all")
    found = origins(settings)
    assert found["limits.verifier_timeout_multiplier"] == (4.0, "profile swe-marathon")
    assert found["limits.agent_timeout_multiplier"] == (2.0, "config.toml:8")
    assert found["limits.after_agent"] == (AfterAgent.KILL_ALL, "env MARATHOND_LIMITS__AFTER_AGENT")
    assert found["network.undeclared"] == ("public", "profile swe-marathon")
    assert found["limits.gate_timeout_s"][1] == "default"
    assert found["campaign.benchmark"] == ("swe-marathon", "config.toml:4")
    plain = read()
    assert plain.benchmark is None and plain.limits.verifier_timeout_multiplier == 1.0
    named = read(MARATHOND_CAMPAIGN__BENCHMARK="swe-marathon")
    assert named.limits.verifier_timeout_multiplier == 4.0


def test_ones_own_profile_lies_beside_the_configuration(read: Load, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    settings = read('benchmark = "mine.toml"')
    assert settings.benchmark is not None and settings.benchmark.name == "mine"
    assert settings.undeclared_network is NetworkPolicy.NONE
    assert origins(settings)["limits.verifier_timeout_multiplier"] == (3, "profile mine")
    assert origins(settings)["limits.agent_timeout_multiplier"] == (1.0, "default")


@pytest.mark.parametrize(
    ("campaign", "words"),
    [
        (
            'benchmark = "swe-maraton"',
            'config.toml:4: campaign.benchmark = "swe-maraton": no such profile; did you mean swe-marathon?; one of your own is named by '
            "its path, such as ./swe-maraton.toml",
        ),
        ('benchmark = "x"', "no such profile; there are harbor, swe-marathon, terminal-bench; one of your own"),
        ('benchmark = "gone.toml"', "gone.toml: cannot be read: no such file or directory"),
        ("benchmark = 5", "config.toml:4: campaign.benchmark = 5: must be text in quotes"),
        ('benchmark = ""', 'config.toml:4: campaign.benchmark = "": must not be empty'),
    ],
)
def test_a_profile_that_is_not_there(read: Load, campaign: str, words: str) -> None:
    assert words in said(lambda: read(campaign))[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("format = 1", "format = 2", "mine.toml:1: format = 2: must be one of 1"),
        ('name = "mine"', "", "mine.toml: name: required"),
        ("[timeouts]", "[timeout]", "mine.toml:5: timeout: unknown section; did you mean timeouts?"),
        ("verifier_multiplier = 3", "verifier_multiplyer = 3", "mine.toml:6: timeouts.verifier_multiplyer = 3: unknown key; did you mean"),
        ("verifier_multiplier = 3", "verifier_multiplier = 0", "mine.toml:6: timeouts.verifier_multiplier = 0: must be greater than 0"),
        ('note = "yes or no"', "", "mine.toml:9: scores.partial.note: required where exists = false: the reason"),
        ('note = "yes or no"', 'note = "a\\nb"', "must be one line of text"),
        ('"no-network"', '"offline"', 'mine.toml:3: network_default = "offline": must be one of public, no-network'),
        ('"kill-all"', '"kill"', 'mine.toml:4: after_agent = "kill": must be one of keep-detached, kill-all'),
        ("[timeouts]", '[features.gpuu]\nsupport = "no"\nnote = "n"\n[timeouts]', "mine.toml:5: features.gpuu: must be one of gpu, "),
        (
            "[timeouts]",
            '[features.gpu]\nsupport = "yes"\n[timeouts]',
            'mine.toml:6: features.gpu.support = "yes": must be no: this version parks such tasks',
        ),
        ("[timeouts]", '[features.ux-stage]\nsupport = "partly"\n[timeouts]', "required where support = partly: what is missing"),
        ("[timeouts]", '[tasks.a]\nmarks = ["gpu"]\n[timeouts]', 'mine.toml:6: tasks.a.marks[0] = "gpu": needs [features.gpu]'),
        ("[timeouts]", '[tasks.a]\nmarks = ["gqu"]\n[timeouts]', 'mine.toml:6: tasks.a.marks[0] = "gqu": must be one of gpu, offline'),
        (
            "[timeouts]",
            '[images]\nfolders = ["docker"]\n[timeouts]',
            'mine.toml:6: images.folders[0] = "docker": must be one of environment',
        ),
    ],
)
def test_what_is_wrong_in_a_profile_is_told_with_its_line(read: Load, tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in MINE
    (tmp_path / "mine.toml").write_text(MINE.replace(old, new, 1))
    assert any(words in line for line in said(lambda: read('benchmark = "mine.toml"')))


def test_a18_the_profile_is_treatment_by_effective_values_and_digest_its_prose_is_not(read: Load, tmp_path: Path) -> None:
    def hash_of(text: str, rest: str = "") -> str:
        (tmp_path / "mine.toml").write_text(text)
        return treatment_hash(campaign_treatment(read('benchmark = "mine.toml"', rest)))

    first = hash_of(MINE)
    assert hash_of(MINE.replace("yes or no", "either or") + '# other\n[features.gpu]\nsupport = "no"\nnote = "n"\n') == first
    others = {
        hash_of(MINE.replace("multiplier = 3", "multiplier = 4")),
        hash_of(MINE, "[limits]\nverifier_timeout_multiplier = 5\n"),
        hash_of(MINE + "[tasks.t]\nagent_s = 5\n"),
        treatment_hash(campaign_treatment(read())),
        treatment_hash(campaign_treatment(read('benchmark = "harbor"'))),
    }
    assert len(others | {first}) == 6
    assert campaign_treatment(read('benchmark = "harbor"'))["benchmark"] == known("harbor").treatment()
    assert "benchmark" not in campaign_treatment(read())  # campaigns from before there were profiles keep their hash


def test_d11_a_submission_keeps_the_profile_for_reports(read: Load) -> None:
    stored = json.loads(config_json(read('benchmark = "terminal-bench"')))
    assert stored["campaign"]["benchmark"] == "terminal-bench"
    assert stored["profile"]["scores"]["partial"] == {"exists": False, "note": "its verifiers write 0 or 1 and nothing between"}
    assert json.loads(config_json(read()))["profile"] is None


# ── does a folder fit ──


def refused(settings: Settings) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        read_tasks(settings, {})
    return str(caught.value).split("\n")


def test_a_folder_that_is_not_the_benchmarks_is_refused_by_name(read: Load, tmp_path: Path) -> None:
    make_benchmark(tmp_path / "tasks", leave_out=("wasm-simd", "zstd-decoder"))
    make_task(tmp_path / "tasks", "hello-world")
    head = 'config.toml:4: campaign.benchmark = "swe-marathon": '
    whole = read('benchmark = "swe-marathon"')
    assert refused(whole) == [
        head + "hello-world is not one of its 20 tasks: leave it out by campaign.exclude, or take another profile",
        head + "wasm-simd, zstd-decoder are missing of its 20 tasks: name those that are meant in campaign.include",
    ]
    some = read('benchmark = "swe-marathon"\ninclude = ["vliw-kernel-optimization", "stripe-clone"]')
    assert [task.name for task in read_tasks(some, {}).tasks] == ["stripe-clone", "vliw-kernel-optimization"]
    assert len(refused(read('benchmark = "swe-marathon"\nexclude = ["hello-world"]'))) == 1


def test_marks_that_contradict_are_refused_and_other_limits_are_told(read: Load, tmp_path: Path) -> None:
    root = make_benchmark(tmp_path / "tasks")
    mend(root / "trimul-cuda", "gpus = 1\n", "")
    mend(root / "zstd-decoder", '"no-network"', '"public"')
    mend(root / "wasm-simd", "[environment]\n", "[environment]\ngpus = 2\n")
    (root / "s3-clone/task.toml").write_text("[agent\n")  # broken: parks by itself, contradicts nobody
    head = 'config.toml:4: campaign.benchmark = "swe-marathon": '
    assert refused(read('benchmark = "swe-marathon"')) == [
        head + "trimul-cuda: is known as gpu, and its folder does not show it",
        head + "wasm-simd: its folder shows gpu, and it is not known as that",
        head + "zstd-decoder: is known as offline, and its folder does not show it",
    ]


def test_a_profile_without_names_takes_any_task_and_one_without_tests_images_none_that_has_one(read: Load, tmp_path: Path) -> None:
    folder = make_task(tmp_path / "tasks", "one")
    (folder / "tests/Dockerfile").write_text("FROM scratch\n")
    assert len(read_tasks(read('benchmark = "harbor"'), {}).tasks) == 1
    (tmp_path / "mine.toml").write_text(MINE)
    path = json.dumps(str(tmp_path / "mine.toml"))
    assert refused(read('benchmark = "mine.toml"')) == [
        f"config.toml:4: campaign.benchmark = {path}: one: tests/Dockerfile: images are expected in environment only"
    ]


def test_a_feature_that_only_the_profile_knows_parks_too(read: Load, tmp_path: Path) -> None:
    make_task(tmp_path / "tasks", "one")
    make_task(tmp_path / "tasks", "two")
    own = MINE + '[features.ux-stage]\nsupport = "no"\nnote = "no browser here"\n[tasks.one]\nmarks = ["ux-stage"]\n[tasks.two]\n'
    (tmp_path / "mine.toml").write_text(own)
    one, two = read_tasks(read('benchmark = "mine.toml"'), {}).tasks
    assert isinstance(one, Unrunnable) and isinstance(two, Task)
    assert (one.code, one.detail) == ("task_unsupported", "ux-stage: no browser here (profile mine)")


def test_b17_the_network_of_a_task_that_declares_none_is_the_profiles_and_says_so(read: Load, tmp_path: Path) -> None:
    folder = make_task(tmp_path / "tasks", "one")
    mend(folder, 'network_mode = "no-network"\n', "")
    (tmp_path / "mine.toml").write_text(MINE)
    for campaign, rest, expected in (
        ("", "", (NetworkPolicy.PUBLIC, "format default")),
        ('benchmark = "mine.toml"', "", (NetworkPolicy.NONE, "network.undeclared")),
        ('benchmark = "mine.toml"', '[network]\nundeclared = "public"\n', (NetworkPolicy.PUBLIC, "format default")),
    ):
        reading = read_tasks(read(campaign, rest), {})
        task = reading.tasks[0]
        assert isinstance(task, Task) and (task.network, task.network_origin) == expected
        assert reading.marks("one") == ({Mark.OFFLINE} if expected[0] is NetworkPolicy.NONE else set())


def test_the_comparison_is_pure_and_bounded() -> None:
    many = Known("b", {f"t{n:02}": KnownTask() for n in range(20)})
    assert list(names_differ(many, [], included=["x"], excluded=[])) == []
    assert "t07 and 12 more are missing" in next(names_differ(many, [], included=[], excluded=[]))
    assert list(names_differ(Known("b"), ["anything"], included=[], excluded=[])) == []
    one = Known("b", {"t": KnownTask(frozenset({Mark.UX_STAGE}))}, frozenset({Mark.GPU}))
    assert list(marks_differ(one, "t", frozenset())) == []
    assert list(marks_differ(one, "t", frozenset({Mark.COMPOSE}))) == []
    assert len(list(marks_differ(one, "t", frozenset({Mark.GPU})))) == 1
    assert Support("partly") is Support.PARTLY


def test_limits_other_than_the_profiles_are_told(tmp_path: Path) -> None:
    task = look(make_task(tmp_path, "t", environment="memory_mb = 2048\n", agent_s=60, verifier_s=30)).outcome
    assert isinstance(task, Task)
    differ = limits_differ(Known("b", {"t": KnownTask(agent_s=90, verifier_s=30, cpus=2, memory_gb=2)}), task)
    assert list(differ) == ["t: agent limit 60 s, b has 90 s", "t: cpus none, b has 2"]
