"""What the configuration accepts, the parts that use it accept, too: nothing passes `config check` and is refused at the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.core.subnets import free_subnets
from marathond.engine.client import EngineClient
from marathond.service.settings import Settings, load

MINIMAL = '[campaign]\nname = "first"\ntasks = ["tasks/*"]\n[arms.nop]\nkind = "nop"\n'


def read(folder: Path, text: str) -> Settings:
    (folder / "config.toml").write_text(MINIMAL + text)
    return load(Path("config.toml"), environ={"HOME": "/home/ana"}, cwd=folder, uid=0)


def accepts(call: Callable[[], object]) -> bool:
    try:
        call()
    except ConfigError:
        return False
    return True


def test_every_subnet_size_that_is_accepted_can_be_handed_out(tmp_path: Path) -> None:
    """The daemon died of a prefix that `config check` had let pass."""
    for prefix in range(16, 30):
        network = read(tmp_path, f"[network]\nprefix = {prefix}\ncap = 1\n").network
        assert next(free_subnets(network.range, network.prefix, leased=[], quarantined=[], occupied=[])) == f"198.19.0.0/{prefix}"
    for prefix in (15, 30, 31):
        assert not accepts(lambda wrong=prefix: read(tmp_path, f"[network]\nprefix = {wrong}\ncap = 1\n"))


@pytest.mark.parametrize("url", ["unix:///run/docker.sock", "tcp://127.0.0.1:2375", "http://127.0.0.1:2375", "https://h:2376", "ssh://h"])
def test_the_configuration_and_the_engines_client_accept_the_same_urls(tmp_path: Path, url: str) -> None:
    configured = accepts(lambda: read(tmp_path, f'[engine]\nurl = "{url}"\n'))
    assert configured == accepts(lambda: EngineClient(url, 1.0)) == (not url.startswith(("https", "ssh")))


@pytest.mark.parametrize("target", ["/marathond", "/marathond/ctl", "/./marathond//inputs", "/tests/x", "/solution", "/logs/agent"])
def test_no_mount_covers_the_trials_own_folders(tmp_path: Path, target: str) -> None:
    mount = f'[arms.x]\nkind = "nop"\nmounts = [{{ source = "a", target = "{target}" }}]\n'
    with pytest.raises(ConfigError, match="which belong to the trial itself"):
        read(tmp_path, mount)
    assert read(tmp_path, mount.replace(target, "/opt/marathond")).arms["x"].mounts[0].target == "/opt/marathond"
