"""Settings: layers and their origins, and one clear line for everything that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.core.model import Arm, Mount
from marathond.core.names import AfterAgent
from marathond.service.settings import Settings, load, origins
from marathond.service.settings_errors import ConfigErrors

MINIMAL = """[campaign]
name = "first"
tasks = ["tasks/*"]
[arms.nop]
kind = "nop"
"""

Load = Callable[..., Settings]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    def read(text: str, overrides: Mapping[str, object] | None = None, **environ: str) -> Settings:
        (tmp_path / "config.toml").write_text(text, encoding="utf-8")
        environ = {"HOME": "/home/ana", **environ}
        return load(Path("config.toml"), overrides, environ=environ, cwd=tmp_path, uid=0)

    return read


def wrong(read: Load, text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, **environ)
    return str(caught.value).split("\n")


def test_defaults(read: Load) -> None:
    settings = read(MINIMAL)
    assert str(settings.daemon.control_socket) == "/var/lib/marathond/control.sock"
    assert settings.engine.url == "unix:///var/run/docker.sock"
    assert (settings.network.range, settings.network.prefix, settings.network.cap, settings.network.margin) == ("198.19.0.0/16", 28, 64, 2)
    assert settings.limits.agent_timeout_s is None
    assert (settings.arm_names, settings.campaign.replicates, settings.admission.seed) == (("nop",), 1, 1)


def test_every_value_tells_its_origin(read: Load) -> None:
    text = MINIMAL + '[admission]\npasses = 7\n[engine.build_args]\nX = "file"\n[daemon]\nlog_level = "debug"\n'
    environ = {"MARATHOND_ADMISSION__CONCURRENCY": "8", "DOCKER_HOST": "tcp://h:1", "MARATHOND_DAEMON__LOG_LEVEL": "error"}
    found = origins(read(text, {"campaign.replicates": 3, "daemon.log_level": "warning"}, **environ))
    assert found["admission.passes"] == (7, "config.toml:7")
    assert found["engine.build_args"] == ({"X": "file"}, "config.toml:8")
    assert found["admission.concurrency"] == (8, "env MARATHOND_ADMISSION__CONCURRENCY")
    assert found["engine.url"] == ("tcp://h:1", "env DOCKER_HOST")
    assert found["campaign.replicates"] == (3, "override")
    assert found["daemon.log_level"] == ("warning", "override")
    assert found["daemon.state_dir"] == (Path("/var/lib/marathond"), "default")
    assert found["daemon.out_dir"][1] == found["network.cap"][1] == found["arms.nop.user"][1] == "default"
    assert found["arms.nop.kind"] == ("nop", "config.toml:5")


def test_a_higher_layer_replaces_a_table_whole(read: Load) -> None:
    text = MINIMAL + '[engine]\nbuild_args = { A = "1", B = "2" }\n'
    assert read(text, MARATHOND_ENGINE__BUILD_ARGS='{"C": "3"}').engine.build_args == {"C": "3"}
    assert read(text, {"arms.nop.user": "root"}).arms["nop"].user == "root"
    assert read(text, {"engine.build_retries": 0}).engine.build_args == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("MARATHOND_LIMITS__AGENT_TIMEOUT_S", "5340", "limits.agent_timeout_s", 5340.0),
        ("MARATHOND_LIMITS__AGENT_TIMEOUT_S", "none", "limits.agent_timeout_s", None),
        ("MARATHOND_LIMITS__AGENT_TIMEOUT_S", "", "limits.agent_timeout_s", None),
        ("MARATHOND_ENGINE__BUILD_NETWORK", "none", "engine.build_network", "none"),
        ("MARATHOND_ENGINE__BUILD_NETWORK", "", "engine.build_network", None),
        ("MARATHOND_LIMITS__AFTER_AGENT", "kill-all", "limits.after_agent", AfterAgent.KILL_ALL),
        ("MARATHOND_CAMPAIGN__ARMS", '["nop"]', "campaign.arms", ("nop",)),
        ("MARATHOND_CAMPAIGN__TASKS", '["rel", "/abs"]', "campaign.tasks", None),
        ("MARATHOND_CAMPAIGN__NAME", "8", "campaign.name", "8"),
    ],
)
def test_the_environment_as_text(read: Load, tmp_path: Path, name: str, text: str, key: str, value: object) -> None:
    section, _, field = key.partition(".")
    expected = (str(tmp_path / "rel"), "/abs") if key == "campaign.tasks" else value
    assert getattr(getattr(read(MINIMAL, **{name: text}), section), field) == expected


def test_relative_paths_start_at_the_file_that_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    text = MINIMAL + '[[arms.nop.mounts]]\nsource = "tool"\ntarget = "/opt/tool"\n[daemon]\nout_dir = "../out"\nledger = "~/l.db"\n'
    (folder / "x.toml").write_text(text)
    environ = {"HOME": "/home/ana", "MARATHOND_DAEMON__CONTROL_SOCKET": "/s/x.sock"}
    settings = load(folder / "x.toml", {"daemon.state_dir": "/s"}, environ=environ, cwd=tmp_path, uid=0)
    assert settings.config_path == folder / "x.toml"
    assert settings.campaign.tasks == (str(folder / "tasks/*"),)
    assert settings.daemon.out_dir == tmp_path / "out"
    assert settings.daemon.ledger == Path("/home/ana/l.db")
    assert settings.arm_models()[0].mounts == (Mount(str(folder / "tool"), "/opt/tool", True),)


def test_relative_paths_of_the_environment_start_at_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/x.toml").write_text(MINIMAL)
    settings = load(Path("conf/x.toml"), environ={"MARATHOND_DAEMON__OUT_DIR": "o", "HOME": "/"}, cwd=tmp_path, uid=0)
    assert settings.daemon.out_dir == tmp_path / "o"


def test_arms_as_the_rest_of_the_program_knows_them(read: Load) -> None:
    text = """[campaign]
name = "c"
tasks = ["t"]
arms = ["mine", "nop"]
[limits]
after_agent = "kill-all"
[arms.nop]
kind = "nop"
after_agent = "keep-detached"
[arms.oracle]
kind = "oracle"
[arms.mine]
kind = "command"
argv = ["sh", "-c", "true"]
env = { A = "1" }
user = "1000"
cwd = "/app"
install_check = ["true"]
"""
    mine, nop = read(text).arm_models()
    assert mine == Arm("mine", mine.kind, ("sh", "-c", "true"), {"A": "1"}, "1000", "/app", (), ("true",), AfterAgent.KILL_ALL)
    assert (nop.name, nop.after_agent) == ("nop", AfterAgent.KEEP_DETACHED)


def test_settings_cannot_be_changed(read: Load) -> None:
    settings = read(MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        settings.admission.concurrency = 9  # type: ignore[misc]


ONE_LINE = [
    ("[admission]\nconcurrency = 0", "config.toml:7: admission.concurrency = 0: must be at least 1"),
    ("[admission]\nconcurrency = -5", "config.toml:7: admission.concurrency = -5: must be at least 1"),
    ('[admission]\nconcurrency = "8"', 'config.toml:7: admission.concurrency = "8": must be a whole number'),
    ("[admission]\nconcurrency = true", "config.toml:7: admission.concurrency = true: must be a whole number"),
    ("[admission]\nconcurrency = 1.5", "config.toml:7: admission.concurrency = 1.5: must be a whole number"),
    ("[admission]\nmemory_overcommit = 0", "config.toml:7: admission.memory_overcommit = 0: must be greater than 0"),
    ("[admission]\ncpu_overcommit = nan", "config.toml:7: admission.cpu_overcommit = NaN: must be a finite number"),
    ("[admission]\nreserve_memory_mb = 1e99", "config.toml:7: admission.reserve_memory_mb = 1e+99: must be a whole number"),
    (
        '[admission]\norder = "arm-mojor"',
        'config.toml:7: admission.order = "arm-mojor": must be one of replicate-major, arm-major, task-major; did you mean arm-major?',
    ),
    ("[limits]\nagent_timeout_s = -5", "config.toml:7: limits.agent_timeout_s = -5: must be greater than 0"),
    ("[limits]\nagent_timeout_s = 99999999", "config.toml:7: limits.agent_timeout_s = 99999999: must be at most 31536000"),
    ("[limits]\nagent_timeout_s = inf", "config.toml:7: limits.agent_timeout_s = Infinity: must be a finite number"),
    ("[limits]\nagent_timeout_s = 2026-01-02", "config.toml:7: limits.agent_timeout_s = 2026-01-02: must be a number"),
    ("[limits]\npids = 31", "config.toml:7: limits.pids = 31: must be 0 (no limit) or lie in 32-4194304"),
    ("[limits]\npids = true", "config.toml:7: limits.pids = true: must be a whole number"),
    ("[limits]\nafter_agent = 3", "config.toml:7: limits.after_agent = 3: must be one of keep-detached, kill-all"),
    ("[limts]\nx = 3", "config.toml:6: limts: unknown section; did you mean limits?"),
    ("[admission]\n\nconcurency = 3", "config.toml:8: admission.concurency = 3: unknown key; did you mean concurrency?"),
    ('[limits]\nstate_dir = "/srv/m"', 'limits.state_dir = "/srv/m": unknown key; did you mean daemon.state_dir?'),
    ("[network]\nrange = 5", "config.toml:7: network.range = 5: must be text in quotes"),
    ('[network]\nmode = "Auto"', 'config.toml:7: network.mode = "Auto": must be one of explicit, auto; did you mean auto?'),
    ('[network]\nrange = "8.8.0.0/16"', "must be a private range: not public, loopback, link-local or multicast"),
    ('[network]\nrange = "198.19.0.1/16"', "must be an IPv4 network such as 198.19.0.0/16 (198.19.0.1/16 has host bits set)"),
    ("[network]\nprefix = 30", "config.toml:7: network.prefix = 30: must be at most 29"),
    ('[network]\nrange = "10.0.0.0/30"\ncap = 1', 'range = "10.0.0.0/30": must be at least as large as one subnet of a trial, a /29'),
    ('[network]\nrange = "10.0.0.0/24"\ncap = 32', "config.toml:8: network.cap = 32: must be at most 16: no more /28 fit in 10.0.0.0/24"),
    ('[network]\nrange = "10.0.0.0/29"\ncap = 1', "config.toml:6: network.prefix: must be at least 29, the size of network.range"),
    ('[engine]\nurl = "ssh://x"', 'engine.url = "ssh://x": must start with one of unix://, tcp://, http:// (TLS and ssh are not'),
    ('[engine]\nurl = "unix://relative"', "must name an absolute path, as in unix:///var/run/docker.sock"),
    ("[engine.build_args]\nA = 1", "config.toml:7: engine.build_args.A = 1: must be text in quotes"),
    ('[engine.build_args]\n"A B" = "x"', 'config.toml:7: engine.build_args.A B = "x": must be a variable\'s name (letters, digits, _)'),
    ('[daemon]\nledger = ""', 'config.toml:7: daemon.ledger = "": must not be empty'),
    ('[daemon]\nledger = "\\u0000"', "must not contain a NUL byte"),
    ("[daemon]\nledger = 5", "config.toml:7: daemon.ledger = 5: must be a path in quotes"),
    ('[arms.x]\nkind = "oracl"', 'config.toml:7: arms.x.kind = "oracl": must be one of oracle, nop, command, codex; did you mean oracle?'),
    ('[arms.x]\nuser = "y"', "config.toml:6: arms.x.kind: required"),
    ('[arms.x]\nkind = "command"', 'config.toml:6: arms.x.argv: required for kind = "command"'),
    (
        '[arms.x]\nkind = "oracle"\nargv = ["a"]',
        'config.toml:8: arms.x.argv = ["a"]: forbidden for kind = "oracle", only "command" has one',
    ),
    ('[arms.x]\nkind = "command"\nargv = "ls"', 'config.toml:8: arms.x.argv = "ls": must be a list'),
    ('[arms.x]\nkind = "command"\nargv = [\n"ls",\n5]', "config.toml:10: arms.x.argv[1] = 5: must be text in quotes"),
    ('[arms.x]\nkind = "nop"\ncwd = "app"', 'config.toml:8: arms.x.cwd = "app": must be an absolute path in the container'),
    (
        '[arms.X]\nkind = "nop"',
        "config.toml:6: arms.X: must be lower-case letters and digits, joined by - or _, at most 60",
    ),
    ("[arms]\nx = 3", "config.toml:7: arms.x = 3: must be a table"),
    (
        '[[arms.x.mounts]]\nsource = "a"\ntarget = "/a"\n[[arms.x.mounts]]\nsource = "b"\ntarget = "/tests/x"\n[arms.x]\nkind = "nop"',
        'config.toml:11: arms.x.mounts[1].target = "/tests/x": '
        "must not lie in /tests, /solution, /logs, /marathond, which belong to the trial itself",
    ),
    (
        '[arms.x]\nkind = "nop"\nmounts = [{ source = "a", target = "/a", ro = 1 }]',
        "arms.x.mounts[0].ro = 1: unknown key; known: source, target, read_only",
    ),
    ('[arms.x]\nkind = "nop"\nmounts = [{ source = "a", target = "/.." }]', "must be a path below / without .."),
]


@pytest.mark.parametrize(("addition", "line"), ONE_LINE, ids=range(len(ONE_LINE)))
def test_one_wrong_value_is_one_clear_line(read: Load, addition: str, line: str) -> None:
    if addition.startswith("[arms]"):
        lines = wrong(read, MINIMAL.replace('[arms.nop]\nkind = "nop"\n', "\n\n") + addition)
    elif addition.startswith("[[arms.x"):  # the table's header after its own array is what TOML forbids: say it inline
        addition = addition.replace('\n[arms.x]\nkind = "nop"', "")
        lines = [found for found in wrong(read, MINIMAL + addition) if "kind" not in found]
    else:
        lines = wrong(read, MINIMAL + addition)
    assert len(lines) == 1
    assert line in lines[0] if not line.startswith("config.toml") else lines[0] == line


def test_a_campaign_needs_a_name_tasks_and_arms(read: Load) -> None:
    assert wrong(read, "[campaign]\n") == [
        "config.toml: arms: required",
        "config.toml:1: campaign.name: required",
        "config.toml:1: campaign.tasks: required",
    ]
    assert wrong(read, MINIMAL.replace('["tasks/*"]', "[]")) == ["config.toml:3: campaign.tasks = []: must not be empty"]
    assert wrong(read, MINIMAL.replace('"first"', '"../x"')) == [
        'config.toml:2: campaign.name = "../x": must be lower-case letters and digits, joined by - or _, at most 60'
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('arms = ["nop", "orcale"]', 'config.toml:4: campaign.arms[1] = "orcale": no such arm in [arms]; defined: nop'),
        ('arms = ["nap"]', 'config.toml:4: campaign.arms[0] = "nap": no such arm in [arms]; did you mean nop?'),
        ('arms = ["nop", "nop"]', 'config.toml:4: campaign.arms[1] = "nop": named twice'),
        ("arms = []", "config.toml:4: campaign.arms = []: must not be empty"),
        ('include = ["a"]\nexclude = ["a"]', 'config.toml:5: campaign.exclude[0] = "a": both included and excluded'),
        ("replicates = 0", "config.toml:4: campaign.replicates = 0: must be at least 1"),
    ],
)
def test_the_extent_of_a_campaign(read: Load, line: str, expected: str) -> None:
    assert wrong(read, MINIMAL.replace("[arms.nop]", f"{line}\n[arms.nop]")) == [expected]


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file(read: Load) -> None:
    text = MINIMAL + "[network]\ncap = 0\n[admission]\npasses = 0\n[limits]\nnope = 1\n"
    with pytest.raises(ConfigErrors) as caught:
        read(text, MARATHOND_LIMITS__AGENT_TIMEOUT_S="-1", MARATHOND_LIMTS__X="1", MARATHOND_ENGINE__BUILD_ARGS="{")
    assert str(caught.value).split("\n") == [
        "env MARATHOND_ENGINE__BUILD_ARGS: engine.build_args = {: must be JSON: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)",
        "env MARATHOND_LIMTS__X: no such setting; did you mean MARATHOND_LIMITS__PIDS?",
        "env MARATHOND_LIMITS__AGENT_TIMEOUT_S: limits.agent_timeout_s = -1: must be greater than 0",
        "config.toml:7: network.cap = 0: must be at least 1",
        "config.toml:9: admission.passes = 0: must be at least 1",
        "config.toml:11: limits.nope = 1: unknown key; known: agent_timeout_s, agent_timeout_multiplier, verifier_timeout_multiplier, "
        "build_timeout_multiplier, after_agent, pids, gate_timeout_s, artifact_max_mb, artifact_max_files",
    ]
    assert len(caught.value.errors) == 6
    assert all(isinstance(error, ConfigError) for error in caught.value.errors)


def test_a_variable_close_to_a_setting_is_not_ignored(read: Load) -> None:
    assert wrong(read, MINIMAL, MARATHOND_ADMISSION__CONCURENCY="8") == [
        "env MARATHOND_ADMISSION__CONCURENCY: no such setting; did you mean MARATHOND_ADMISSION__CONCURRENCY?"
    ]
    assert "arms are set in the file only" in wrong(read, MINIMAL, MARATHOND_ARMS__NOP__USER="x")[0]
    assert read(MINIMAL, MARATHOND_TEST_ENGINE="somebody else's").campaign.name == "first"


def test_an_override_must_name_a_key(read: Load) -> None:
    with pytest.raises(ConfigError, match=r"override: passes: must be section\.key, or arms\.NAME\.key"):
        read(MINIMAL, {"passes": 3})
    with pytest.raises(ConfigError, match=r"override: admission.passses = 3: unknown key; did you mean passes"):
        read(MINIMAL, {"admission.passses": 3})


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[campaign\n", "config.toml:1: not TOML: Expected ']' at the end of a table declaration"),
        (b"[a]\n\nx = \n", "config.toml:3: not TOML: Invalid value"),
        (b"[a]\nx = 1\nx = 2\n", "config.toml:3: not TOML: Cannot overwrite a value"),
        (b'[a]\nx = """never closed\n\n', "config.toml:2: not TOML: "),
        (b"[a]\nx = '\xff'\n", "config.toml:2: byte 0xff: must be UTF-8 text"),
        (b"x = " + b"[" * 5000, "config.toml: not TOML: nested too deeply"),
        (b"#" * (4 << 20) + b"#", "config.toml: not a configuration: larger than 4 MiB"),
    ],
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(Path("config.toml"), environ={}, cwd=tmp_path, uid=0)
    assert str(caught.value).startswith(line)


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(ConfigError, match=r"config.toml: cannot be read: is a directory"):
        load(Path("config.toml"), environ={}, cwd=tmp_path, uid=0)


def test_no_configuration_tells_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(MINIMAL)
    with pytest.raises(ConfigError) as caught:
        load(environ={"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "HOME": "/"}, cwd=tmp_path, uid=0)
    assert str(caught.value) == (
        f"no configuration: looked for {tmp_path}/marathond.toml, {tmp_path}/xdg/marathond/config.toml, /etc/marathond/config.toml"
        "; there is a config.toml here: name it with --config"
    )


def test_sockets_that_would_not_fit_are_refused_by_name(read: Load) -> None:
    deep = "/" + "d" * 80
    assert wrong(read, MINIMAL + f'[daemon]\nstate_dir = "{deep}"\n')[0].endswith(
        "must be at most 75 bytes, this one has 81: sockets in state_dir/r/t0001/ must fit in 107"
    )
    lines = wrong(read, MINIMAL + f'[daemon]\ncontrol_socket = "/{"s" * 107}"\n')
    assert lines[0].startswith("config.toml:7: daemon.control_socket = ")
    assert lines[0].endswith("a unix socket's path holds 107 bytes, this one has 108; choose a shorter one")
    assert "holds 107 bytes, this one has 109" in wrong(read, MINIMAL + f'[engine]\nurl = "unix:///{"s" * 108}"\n')[0]
