"""``network.runtime_proxy``: what may stand in it, and how its password stays out of the treatment."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.cli.output import Screen
from marathond.cli.plan import make_plan, show
from marathond.core.canonical import canonical_json
from marathond.core.errors import ConfigError
from marathond.service.settings import Settings, load
from marathond.service.taskread import Reading
from marathond.service.treatment import campaign_treatment, treatment_hash
from marathond.tasks.harbor import look
from tests.support.rig import make_task

CONFIG = '[campaign]\nname = "c"\ntasks = ["t"]\n[arms.nop]\nkind = "nop"\n[network]\nruntime_proxy = '


def read(tmp_path: Path, table: str) -> Settings:
    (tmp_path / "c.toml").write_text(f"{CONFIG}{table}\n")
    return load(tmp_path / "c.toml", environ={}, uid=0)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('{ PROXY = "http://p:1" }', 'network.runtime_proxy.PROXY = "http://p:1": must be one of all_proxy, ftp_proxy'),
        ('{ HTTP_PROXY = "" }', 'network.runtime_proxy.HTTP_PROXY = "": must not be empty'),
        ('{ HTTPS_PROXY = "http://127.0.0.1:3128" }', "must not be a loopback address"),
        ('{ all_proxy = "localhost:1" }', "must not be a loopback address"),
        ("{ HTTP_PROXY = 1 }", "must be text in quotes"),
    ],
)
def test_what_is_no_proxy_is_refused_with_its_line(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, table)
    assert "c.toml:7: " in str(caught.value) and said in str(caught.value)


def test_exceptions_may_name_loopback_and_none_is_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, '{ http_proxy = "p:1", NO_PROXY = "127.0.0.1" }').network.runtime_proxy["NO_PROXY"] == "127.0.0.1"
    assert read(tmp_path, "{}").network.runtime_proxy == {}


def test_the_proxy_is_treatment_its_password_is_not(tmp_path: Path) -> None:
    plain, first, second, other = (
        campaign_treatment(read(tmp_path, table))
        for table in (
            "{}",
            '{ HTTP_PROXY = "http://user:pass-word@p:1" }',
            '{ HTTP_PROXY = "http://user:other-word@p:1" }',
            '{ HTTP_PROXY = "http://p:2" }',
        )
    )
    assert treatment_hash(first) == treatment_hash(second)
    assert len({treatment_hash(made) for made in (plain, first, other)}) == 3
    assert "pass-word" not in canonical_json(first)
    assert "runtime_proxy" not in plain  # campaigns from before the knob keep their hash


def test_plan_discloses_it_with_the_number_of_tasks_and_without_the_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [make_task(tmp_path / "tasks", name, network=network) for name, network in (("open", "public"), ("closed", "no-network"))]
    looks = [look(path) for path in made]
    tasks = Reading(tuple(one.outcome for one in looks), {one.outcome.name: one for one in looks})
    line = "Containers of 1 task with a network reach it through a proxy: HTTP_PROXY=http://***@p:1."
    for table, said in (('{ HTTP_PROXY = "http://user:pass-word@p:1" }', True), ("{}", False)):
        plan = make_plan(read(tmp_path, table), tasks, "unknown: not asked")
        show(plan, Screen(), all_cells=False)
        rows = [row for row in plan.disclosures if row.code == "runtime_proxy"]
        assert [row.text for row in rows] == [line] * said
        assert ("  runtime_proxy" in capsys.readouterr().out) is said
