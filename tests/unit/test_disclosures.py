"""Disclosures: each code there when its facts are, absent when they are not; every field of an arm looked at by somebody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.agents.codex import config
from marathond.core import model
from marathond.core.disclosure import Conditions, Disclosure, TaskFacts
from marathond.core.disclosures import CODES, LOOKED_AT, disclosures
from marathond.core.model import Arm, CodexArm, LoopXArm, Mount
from marathond.core.names import AfterAgent, AgentKind, Drive, LoopXProfile, NetworkPolicy

CODEX = CodexArm(package="codex-0.171.0-abc", version="0.171.0", model="gpt-6.2-sol", effort="high")


def codex(name: str, drive: Drive = Drive.TURN, after: AfterAgent = AfterAgent.KEEP_DETACHED, **changes: Any) -> Arm:
    return Arm(name, AgentKind.CODEX, after_agent=after, codex=replace(CODEX, drive=drive, **changes))


PLAIN, GOAL = codex("plain"), codex("goal", Drive.GOAL)
OPERATED = codex("operated", Drive.GOAL, operator=True)
ORACLE, NOP, SH = Arm("oracle", AgentKind.ORACLE), Arm("nop", AgentKind.NOP), Arm("sh", AgentKind.COMMAND, argv=("run", "--key=sk-1"))
LOOPX = LoopXArm(package="loopx-2.1.1-def", version="2.1.1", source="sha256:ab12")


def loopx(name: str, drive: Drive, profile: LoopXProfile, given: dict[str, Any] | None = None, **changes: Any) -> Arm:
    return codex(name, drive, operator=changes.pop("operator", True), loopx=replace(LOOPX, profile=profile, **(given or {})), **changes)


SSH, CLI = (loopx(name, Drive.GOAL, profile) for name, profile in (("ssh", LoopXProfile.SSH_GOAL), ("cli", LoopXProfile.CODEX_CLI)))
HEART = loopx("heart", Drive.WAKE, LoopXProfile.GENERIC_CLI)
FIVE = (PLAIN, GOAL, SSH, CLI, HEART)
CODEX_ARMS, ALL = (PLAIN, GOAL, OPERATED), (PLAIN, GOAL, OPERATED, ORACLE, NOP, SH)

CLOSED = TaskFacts("zstd", NetworkPolicy.NONE, "task network_mode", 18_000)
OPEN = TaskFacts("rust", NetworkPolicy.PUBLIC, "task network_mode", 36_000)
SILENT = TaskFacts("wasm", NetworkPolicy.PUBLIC, "format default", None)
ON = Conditions(pids=16384, gateway=True, hold_s=240, held_at_most_s=3600, tasks=(CLOSED, OPEN))
BARE = Conditions()

# code: what gives it, whom it concerns, words of its text and its comparison; and what does not give it.
Case = tuple[tuple[Arm, ...], Conditions, tuple[str, ...], str, str, tuple[Arm, ...], Conditions]
INSIDE = loopx("in", Drive.GOAL, LoopXProfile.SSH_GOAL, {"state_inside": True}, operator=False)
LX = ("ssh", "cli", "heart")
P, G, C, N = ("plain",), ("goal",), ("plain", "goal", "operated"), ("nop",)
EARLIER = "for arms of LoopX only, at most 8 times"
CASES: dict[str, Case] = {
    "oracle_is_no_agent": (ALL, ON, ("oracle",), "own solution", "from above", CODEX_ARMS, ON),
    "nop_is_no_agent": (ALL, ON, N, "Nothing is done", "from below", CODEX_ARMS, ON),
    "command_of_its_own": (ALL, ON, ("sh",), "its own affair", "these are not", CODEX_ARMS, ON),
    "loopx_body_as_objective": ((HEART, SSH), ON, ("ssh",), "for its profile `codex_app_ssh_goal`", "bodies as objectives", ALL, ON),
    "codex_cli_over_app_server": (FIVE, ON, ("cli",), "over `codex app-server`", "that a person attends", (SSH, HEART, GOAL), ON),
    "heartbeat_on_generic_cli": (
        FIVE,
        ON,
        ("heart",),
        "`generic_cli`, not on `codex_app_heartbeat`",
        "`automation_update`",
        (SSH, CLI),
        ON,
    ),
    "heartbeat_per_wake": (FIVE, ON, ("heart",), "one turn on the same thread", "through the native-goal loop", (SSH, CLI), ON),
    "wake_interval_set": (
        (SSH, loopx("heart", Drive.WAKE, LoopXProfile.GENERIC_CLI, {"wake_interval_s": 90.0})),
        ON,
        ("heart",),
        "90 seconds, whatever LoopX asks",
        "scheduler says",
        FIVE,
        ON,
    ),
    "loopx_state_outside": (FIVE, ON, LX, "outside the task's tree", "inside, in /app;", (INSIDE, GOAL), ON),
    "loopx_state_inside": ((INSIDE, GOAL), ON, ("in",), "inside the task's tree", "as well", FIVE, ON),
    "loopx_task_as_todo": (FIVE, ON, LX, "a quota call must select it", "did no work for 900 s", ALL, ON),
    "loopx_daemon_ended": (FIVE, ON, LX, "ended together with the agent", "outlives the call", ALL, ON),
    "loopx_operator_on": (FIVE, ON, LX, "at most 8 times, counted", "at most 8 times, with a turn", (INSIDE,), ON),
    "loopx_operator_off": ((SSH, INSIDE), ON, ("in",), "nobody clears it", "at most 8 times", FIVE, ON),
    "loopx_staged": (FIVE, ON, LX, "LoopX 2.1.1 (sha256:ab12, loopx-2.1.1-def)", "was with 0.5.3", ALL, ON),
    "plain_over_app_server": (ALL, ON, P, "not a run of `codex exec`", "share one transport", (GOAL, SH), ON),
    "goals_off": (FIVE, ON, ("plain", "heart"), "`goals` is off", "on by default", (GOAL, NOP, SSH), ON),
    "goal_objective_literal": (
        ALL,
        ON,
        ("goal", "operated"),
        "the literal `Finish the task.`",
        "did the same",
        (PLAIN, SH, SSH, HEART),
        ON,
    ),
    "token_budget": ((GOAL, codex("b", Drive.GOAL, token_budget=7000)), ON, ("b",), "7,000 tokens", "time alone", ALL, ON),
    "operator_on": (ALL, ON, ("operated",), "at most 8 times, each counted", EARLIER, (PLAIN, GOAL, SSH, HEART), ON),
    "operator_off": (ALL, ON, G, "ends the run", EARLIER, (PLAIN, OPERATED, INSIDE), ON),
    "turn_cap": (ALL, ON, C, "after 500 turns (the default)", "no such cap", (SH,), ON),
    "idle_turn_cap": (ALL, ON, ("goal", "operated"), "after 3 turns in a row", "without any throttle", (PLAIN,), ON),
    "failed_turn_retried": (ALL, ON, C, "at most 3 times in a trial (the default)", "blocks a goal", (SH,), ON),
    "caps_differ": (
        (PLAIN, GOAL, codex("long", Drive.GOAL, turns_at_most=900)),
        ON,
        ("plain", "goal", "long"),
        "turns 500 (plain, goal), 900 (long)",
        "the same caps",
        ALL,
        ON,
    ),
    "project_untrusted": (ALL, ON, C, "`.codex/config.toml` in it changes nothing", "model, effort", (SH,), ON),
    "agents_md_dropped": (ALL, ON, C, "does not reach the model", "in a trusted project", (NOP,), ON),
    "tasks_with_project_files": (
        ALL,
        replace(ON, tasks=(replace(OPEN, speaks=("AGENTS.md",)), CLOSED)),
        C,
        "come with 1 task of this campaign: rust (AGENTS.md)",
        "skills in untrusted ones",
        ALL,
        ON,
    ),
    "web_search_off": (ALL, ON, C, "web search is off", "off as well", (SH,), ON),
    "no_approvals": (ALL, ON, C, "the container is the sandbox", "a person approves", (NOP,), ON),
    "bundled_skills_off": (ALL, ON, C, "are off", "six of them", (NOP,), ON),
    "codex_retries_pinned": (ALL, ON, C, "8 of a request and 8 of a stream, which may be silent for 300 seconds", "the same", (SH,), ON),
    "codex_staged": (ALL, ON, C, "codex 0.171.0 is mounted read-only", "the newest then", (SH,), ON),
    "models_differ": ((PLAIN, codex("low", effort="low")), ON, ("plain", "low"), "effort low (low)", "share model", ALL, ON),
    "own_surroundings": ((NOP, replace(SH, env={"B": "x", "A": "y"}, user="u")), ON, ("sh",), "variables A, B; user u", "task", ALL, ON),
    "gateway_between": (ALL, ON, C, "at most 240 seconds for one request", "its provider itself", (SH,), ON),
    "held_time_not_charged": (ALL, ON, C, "at most 3,600 seconds in all", "the clock runs on", (PLAIN,), replace(ON, held_is_charged=True)),
    "held_time_charged": (ALL, replace(ON, held_is_charged=True), C, "counts against the deadline", "the clock runs on", ALL, ON),
    "fields_stripped": (ALL, replace(ON, strip=("input[].id",)), C, "input[].id", "sends them", ALL, ON),
    "judge_by_gateway": ((NOP,), replace(ON, judge=True), N, "a key of their own", "own environment", (NOP,), ON),
    "own_deadline": (
        (NOP,),
        replace(ON, own_deadline_s=20_000, tasks=(CLOSED, OPEN, SILENT)),
        N,
        "ends agents before their task would (rust) and is the only limit of tasks that declare none (wasm)",
        "18,000 to 36,000 s",
        (NOP,),
        ON,
    ),
    "agent_time_multiplied": ((NOP,), replace(ON, agent_multiplier=0.3), N, "multiplied by 0.3", "The task format gives", (NOP,), ON),
    "verifier_time_multiplied": ((NOP,), replace(ON, verifier_multiplier=4), N, "multiplied by 4", "declares", (NOP,), ON),
    "tasks_not_the_benchmarks": (
        (NOP,),
        replace(ON, benchmark="swe-marathon", tasks=(replace(OPEN, differs=("rust: cpus 2, swe-marathon has 4",)), CLOSED)),
        N,
        "Other limits or sizes are declared by 1 task of this campaign: rust: cpus 2, swe-marathon has 4.",
        "swe-marathon has",
        (NOP,),
        replace(ON, benchmark="swe-marathon"),
    ),
    "money_cap": (ALL, replace(ON, trial_cap_usd=40), C, "spent $40.00", "time alone", (NOP,), replace(ON, trial_cap_usd=40)),
    "no_network": (ALL, ON, tuple(arm.name for arm in ALL), "1 task have no network at all: zstd", "forbid", ALL, BARE),
    "network_by_default": (
        (NOP,),
        replace(ON, tasks=(SILENT, OPEN)),
        N,
        "the whole internet (1 task): wasm",
        "Harbor does the same",
        (NOP,),
        ON,
    ),
    "no_network_by_default": (
        (NOP,),
        replace(ON, tasks=(replace(SILENT, network=NetworkPolicy.NONE, network_origin="network.undeclared"), OPEN)),
        N,
        "have none at all (1 task): wasm",
        "the whole internet",
        (NOP,),
        replace(ON, tasks=(SILENT, CLOSED)),
    ),
    "runtime_proxy": ((NOP,), replace(ON, runtime_proxy="HTTP_PROXY=http://p:1"), N, "HTTP_PROXY=http://p:1", "proxy", (NOP,), ON),
    "pids_limit": ((NOP,), ON, N, "at most 16,384 processes", "no such limit", (NOP,), BARE),
    "exclusive_verifier": (
        (NOP,),
        replace(ON, exclusive=("zstd",)),
        N,
        "others' may have run beside it, and each trial tells how many",
        "whatever runs beside it",
        (NOP,),
        ON,
    ),
    "no_pids_limit": ((NOP,), BARE, N, "no limit of ours", "no such limit", (NOP,), ON),
    "build_args": ((NOP,), replace(ON, build_args=("FLAVOUR",)), N, "FLAVOUR", "No task", (NOP,), ON),
    "after_agent_keep_detached": ((NOP,), ON, N, "go on while", "Harbor keeps them", (replace(NOP, after_agent=AfterAgent.KILL_ALL),), ON),
    "after_agent_kill_all": ((replace(NOP, after_agent=AfterAgent.KILL_ALL),), ON, N, "is killed", "Harbor keeps them", ALL, ON),
    "agent_dead_before_verifier": ((NOP,), ON, N, "seen to be dead", "does not end the agent", (), ON),
}


def of(code: str, arms: tuple[Arm, ...], on: Conditions) -> list[Disclosure]:
    return [made for made in disclosures(arms, on) if made.code == code]


@pytest.mark.parametrize("code", CASES)
def test_each_code_is_there_with_its_facts_and_absent_without(code: str) -> None:
    arms, on, whom, words, against, others, without = CASES[code]
    (made,) = of(code, arms, on)
    assert made.arms == whom
    assert words in made.text and against in made.compared_with
    assert of(code, others, without) == []


def test_every_code_is_tested_here() -> None:
    assert CASES.keys() == CODES


def test_rows_of_one_code_for_arms_that_differ_in_it() -> None:
    other = codex("other", Drive.GOAL, objective="Go on.", operator=True, unblocks_at_most=1, stream_max_retries=2)
    objectives = of("goal_objective_literal", (GOAL, other), ON)
    assert [(made.arms, "did the same" in made.compared_with) for made in objectives] == [(("goal",), True), (("other",), False)]
    operators = of("operator_on", (OPERATED, other), ON)
    assert [(made.arms, "at most 1 time, each" in made.text) for made in operators] == [(("operated",), False), (("other",), True)]
    pins = of("codex_retries_pinned", (GOAL, other), ON)
    assert [made.compared_with for made in pins] == [
        "The earlier public runs had the same.",
        "The earlier public runs had 8 and 8, and 300 seconds.",
    ]
    assert "unblocks 8 (operated), 1 (other)" in of("caps_differ", (OPERATED, other, PLAIN), ON)[0].text
    assert of("caps_differ", (OPERATED, other, PLAIN), ON)[0].arms == ("operated", "other")


def test_a_multiplier_that_is_the_benchmarks_own_is_none_of_ours() -> None:
    on = replace(ON, benchmark="swe-marathon", agent_multiplier=2, usual_agent_multiplier=2, own_deadline_s=60)
    assert of("agent_time_multiplied", (NOP,), on) == []
    assert of("own_deadline", (NOP,), on)[0].compared_with.startswith("swe-marathon gives the time that each task declares (18,000 to")
    assert of("own_deadline", (NOP,), on)[0].compared_with.endswith(", times 2.")
    (made,) = of("agent_time_multiplied", (NOP,), replace(on, agent_multiplier=1))
    assert "multiplied by 1." in made.text and made.compared_with == "swe-marathon gives the time that each task declares, times 2."


def test_no_proxy_and_no_network_without_a_task_that_has_one() -> None:
    on = replace(ON, runtime_proxy="HTTP_PROXY=http://p:1", tasks=(CLOSED,))
    assert of("runtime_proxy", (NOP,), on) == []
    assert "The model answers" not in of("no_network", (NOP,), on)[0].text


def test_the_benchmark_is_spoken_of_by_name_and_only_where_there_is_one() -> None:
    on = replace(ON, own_deadline_s=60, agent_multiplier=3, verifier_multiplier=3, trial_cap_usd=40, runtime_proxy="P")
    arms = (*ALL, codex("bounded", Drive.GOAL, token_budget=5), replace(SH, name="own", env={"A": "x"}))
    for charged in (True, False):
        without = disclosures(arms, replace(on, held_is_charged=charged))
        said = [words for made in without for words in (made.text, made.compared_with)]
        assert not any("benchmark" in words.lower() for words in said)
        (closed,) = (made for made in without if made.code == "no_network")
        expected = "The task format lets a task forbid its network, and leaves it to the harness how its agent reaches a model."
        assert closed.compared_with == expected
        named = disclosures(arms, replace(on, held_is_charged=charged, benchmark="swe-marathon"))
        speaking = {made.code for made in named if "swe-marathon" in made.compared_with}
        assert speaking == {*LOOKED_AT["Conditions.benchmark"]} - {"held_time_not_charged" if charged else "held_time_charged"}
        (closed,) = (made for made in named if made.code == "no_network")
        assert closed.compared_with.startswith("swe-marathon forbids these tasks the internet, and ")


def test_values_of_variables_and_command_lines_are_told_nowhere() -> None:
    arms = (replace(SH, env={"API_KEY": "swordfish"}, mounts=(Mount("/secret/place", "/opt/tool", False),)),)
    said = repr(disclosures(arms, ON))
    assert "API_KEY" in said and "/opt/tool (writable, content not compared)" in said
    assert "swordfish" not in said and "sk-1" not in said and "/secret" not in said


ARMS = st.lists(
    st.sampled_from([*ALL, SSH, CLI, HEART, INSIDE, codex("x", Drive.GOAL, infra_retries=0, token_budget=5), codex("y", effort="low")]),
    unique_by=lambda arm: arm.name,
    max_size=6,
)


@given(ARMS, st.sampled_from([ON, BARE, replace(ON, strip=("a",), runtime_proxy="P", tasks=(SILENT, CLOSED)), replace(ON, judge=True)]))
def test_any_campaign_gives_rows_that_name_arms_and_are_one_or_two_sentences(arms: list[Arm], on: Conditions) -> None:
    made = disclosures(arms, on)
    known = [arm.name for arm in arms]
    for each in made:
        assert each.arms and list(each.arms) == [name for name in known if name in each.arms]
        for words in (each.text, each.compared_with):
            assert words.endswith(".") and words == words.strip() and "\n" not in words
            assert words.count(". ") <= 2, words
    assert len({(each.code, each.arms) for each in made}) == len(made)
    assert disclosures(arms, on) == made
    assert {each.code for each in made} <= CODES


# ---- nobody adds a knob without deciding what is told of it


def _arm_shapes() -> Sequence[type[Any]]:
    """The arm's row and every dataclass of the model that one of its fields holds; mounts are told by their targets."""
    found: list[type[Any]] = []
    waiting: list[type[Any]] = [Arm]
    while waiting:
        shape = waiting.pop()
        found.append(shape)
        for field in fields(shape):
            words = str(field.type).replace("|", " ").split()
            inner = [kind for name, kind in vars(model).items() if name in words and isinstance(kind, type) and is_dataclass(kind)]
            waiting += [kind for kind in inner if kind not in (*found, *waiting)]
    return found


def test_every_field_of_an_arm_and_of_what_arms_share_was_looked_at() -> None:
    shapes = [*_arm_shapes(), Conditions, TaskFacts]
    assert CodexArm in shapes
    has = {f"{shape.__name__}.{field.name}" for shape in shapes for field in fields(shape)}
    looked = {name for name in LOOKED_AT if not name.startswith("config.")}
    assert has - looked == set(), "decide what a disclosure says of these, then name them in core/disclosures.py: LOOKED_AT"
    assert looked - has == set(), "these are gone"


def test_every_key_of_codexs_configuration_was_looked_at() -> None:
    made = config.config(CODEX, "http://127.0.0.1:1/v1", ["/app"])
    has = {f"config.features.{name}" for name in made.pop("features")} | {f"config.{key}" for key in made}
    assert has == {name for name in LOOKED_AT if name.startswith("config.")}


def test_the_table_names_codes_or_says_why_none() -> None:
    for name, looked in LOOKED_AT.items():
        assert looked, name
        if isinstance(looked, str):
            assert " " in looked, f"{name}: a reason, in words"


def test_a_verifier_that_is_alone_with_everything_says_so() -> None:
    (made,) = of("exclusive_verifier", (NOP,), replace(ON, exclusive=("rust", "zstd"), exclusive_from="everything"))
    assert "of 2 tasks runs alone, for it times code: rust, zstd." in made.text
    assert made.text.endswith("No agent runs beside it either.") and "others'" not in made.text
