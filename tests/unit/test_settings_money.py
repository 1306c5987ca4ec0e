"""[money] and [notify]: prices as the flow knows them, caps that can be counted, and a webhook whose address stays hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.core.money import Price, Rules, nusd
from marathond.core.text import hidden_url
from marathond.service.effective import money_rules
from marathond.service.settings import Settings, load
from marathond.service.submission import build
from marathond.service.treatment import needs_restart

HEAD = '[campaign]\nname = "first"\ntasks = ["tasks/*"]\n[arms.nop]\nkind = "nop"\n'
CODEX = """[arms.plain]
kind = "codex"
drive = "turn"
[codex]
model = "gpt-x-2026-01-31"
[gateway.routes.main]
base_url = "https://provider.example/v1"
key_file = "/etc/key"
"""
PRICES = '[money.prices."gpt-x"]\ninput = 1.25\ncached_input = 0.125\noutput = 10.0\n'
SECRET = "T0123456789/B0123/abcdefABCDEF"


def read(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "tasks" / "one").mkdir(parents=True, exist_ok=True)
    (tmp_path / "config.toml").write_text(text, encoding="utf-8")
    return load(Path("config.toml"), environ={"HOME": "/home/ana"}, cwd=tmp_path, uid=0)


def wrong(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    return str(caught.value)


def test_prices_and_caps_come_as_nano_dollars(tmp_path: Path) -> None:
    text = HEAD + PRICES + "[money]\ntrial_cap_usd = 40.0\ncampaign_cap_usd = 0.5\nexpected_trial_usd = 0.000000001\n"
    price = Price(nusd(1.25), nusd(0.125), nusd(1.25), nusd(10))
    assert money_rules(read(tmp_path, text)) == Rules({"gpt-x": price}, nusd(0.5), nusd(40), 1)
    assert money_rules(read(tmp_path, HEAD)) == Rules()


def test_f13_a_cap_needs_a_price_of_the_model(tmp_path: Path) -> None:
    line = wrong(tmp_path, HEAD + CODEX + "[money]\ntrial_cap_usd = 40.0\n")
    assert line.endswith("money.prices: no price for gpt-x-2026-01-31 (codex.model), and a cap needs one")
    read(tmp_path, HEAD + CODEX + PRICES + "[money]\ntrial_cap_usd = 40.0\n")
    read(tmp_path, HEAD + "[money]\ntrial_cap_usd = 40.0\n")


def test_f13_a_campaigns_cap_needs_something_to_expect_of_the_first_blocks(tmp_path: Path) -> None:
    line = wrong(tmp_path, HEAD + CODEX + PRICES + "[money]\ncampaign_cap_usd = 400.0\n")
    assert "money.campaign_cap_usd = 400.0: needs money.trial_cap_usd or money.expected_trial_usd" in line
    read(tmp_path, HEAD + CODEX + PRICES + "[money]\ncampaign_cap_usd = 400.0\nexpected_trial_usd = 3.0\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("campaign_cap_usd = 0.0", "must be greater than 0"),
        ("campaign_cap_usd = inf", "must be a finite number"),
        ("campaign_cap_usd = true", "must be a number"),
        ("trial_cap_usd = -1.0", "must be greater than 0"),
        ('prices = { "m" = { input = -1.0, output = 1.0 } }', "must be at least 0"),
        ('prices = { "m" = { input = 1.0 } }', "required"),
        ('prices = { "m" = { input = 1.0, output = 1.0, reasoning = 1.0 } }', "unknown key"),
    ],
)
def test_a_wrong_price_or_cap_is_one_clear_line(tmp_path: Path, line: str, expected: str) -> None:
    found = wrong(tmp_path, f"{HEAD}[money]\n{line}\n")
    assert expected in found and found.startswith("config.toml:7: money.") and "\n" not in found


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        (f"https://hooks.example.org/services/{SECRET}", "https://hooks.example.org/…"),
        ("https://ana:pass@hooks.example.org:8443/x?token=y#z", "https://hooks.example.org/…"),
        ("http://[::1]:9/x", "http://[::1]/…"),
        ("http://[::1/x", "…"),
        ("https://ana:p@ss@hooks.example.org/x", "https://hooks.example.org/…"),
        (None, None),
    ],
)
def test_of_a_webhook_only_the_host_is_shown(url: str | None, hidden: str | None) -> None:
    assert hidden_url(url) == hidden


def test_a_webhooks_address_is_in_no_copy_of_the_configuration(tmp_path: Path) -> None:
    settings = read(tmp_path, f'{HEAD}[notify]\nwebhook = "https://hooks.example.org/services/{SECRET}"\ncommand = ["mail-me"]\n')
    assert settings.notify.webhook is not None and SECRET in settings.notify.webhook
    made = build(settings, "ana", {}, {})
    assert SECRET not in made.config_json and "hooks.example.org" in made.config_json
    assert SECRET not in made.treatment_json
    other = read(tmp_path, f'{HEAD}[notify]\nwebhook = "https://hooks.example.org/other"\n')
    assert needs_restart(settings, other) == ("notify.command", "notify.webhook")


def test_a_command_names_a_program(tmp_path: Path) -> None:
    assert "notify.command" in wrong(tmp_path, HEAD + '[notify]\ncommand = ["", "x"]\n')


def test_an_error_line_does_not_show_a_webhooks_address(tmp_path: Path) -> None:
    line = wrong(tmp_path, f'{HEAD}[notify]\nwebhook = "htps://hooks.example.org/services/{SECRET}"\n')
    assert line.startswith('config.toml:7: notify.webhook = "…": ') and SECRET not in line
    line = wrong(tmp_path, f'{HEAD}[notify]\nwebhook = "https://hooks.example.org/services/{SECRET} x"\n')
    assert line.startswith('config.toml:7: notify.webhook = "https://hooks.example.org/…": ') and SECRET not in line
