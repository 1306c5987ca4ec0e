"""The other looks: room on the host, open files, what is staged, prices, the judge's variables, who is told, the gateway, the way out.

Owns these probes; none of them holds a value of the environment or a key for longer than it takes to see that there is one.
"""

from __future__ import annotations

import resource
import shutil
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from marathond.core.money import MODEL_KINDS, price_of
from marathond.core.notices import Notice
from marathond.core.preflight import host as judge_host
from marathond.core.preflight import model as judge
from marathond.core.preflight.rows import Row
from marathond.core.text import hidden_url
from marathond.flow.ways import SignOfLife, read_sign_of_life
from marathond.service.channels import Channel, Command, channels_of
from marathond.service.effective import gateway_folder
from marathond.service.notices import message_of
from marathond.service.preflight import provider
from marathond.service.preflight.egress import Target, target_of
from marathond.service.preflight.run import Unseen, aside
from marathond.service.preflight.scene import Scene
from marathond.service.sections_model import RouteSection
from marathond.tasks.asks import verifier_variables

DIAL_S = 10.0


async def tasks(scene: Scene) -> Row:
    """By their folders and, where the engine answers, by its host's size."""
    try:
        large, blind = await scene.too_large(), ""
    except Unseen as error:
        large, blind = {}, str(error)
    return judge_host.tasks(len(scene.reading.tasks), {**scene.parked, **large}, blind)


async def room(scene: Scene) -> list[Row]:
    info, limits = await scene.info.get(), scene.knobs.limits
    sizes = scene.sizes(await scene.too_large())
    cpus = info.ncpu * limits.cpu_overcommit - limits.reserve_cpus
    memory_mb = int((info.memory_bytes >> 20) * limits.memory_overcommit) - limits.reserve_memory_mb
    return [judge_host.cores(sizes, limits.concurrency, cpus), judge_host.memory(sizes, limits.concurrency, memory_mb)]


async def open_files(scene: Scene) -> Row:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return judge_host.open_files(_bounded(soft), _bounded(hard), scene.knobs.limits.concurrency, "of this shell")


def _bounded(limit: int) -> int:
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


async def ledger(scene: Scene) -> Row:
    book = scene.book
    return judge_host.ledger(str(scene.settings.daemon.ledger), book.ledger_id or "", book.missing, book.why)


async def staged(scene: Scene) -> list[Row]:
    """Whatever the campaign's arms need of what ``marathonctl stage`` puts there."""
    looks = await scene.trees.get()
    rows = [judge.staged(name, "" if seen.tree is None else str(seen.tree.root), seen.why) for name, seen in looks.items()]
    return rows or [judge.nothing_staged()]


async def prices(scene: Scene) -> Row:
    settings = scene.settings
    asks = any(settings.arms[name].kind in MODEL_KINDS for name in settings.arm_names)
    models = {settings.codex.model} if asks and settings.codex.model is not None else set()
    without = {model for model in models if price_of(settings.money.prices, model, None) is None}
    return judge.prices(models, without)


async def judge_key(scene: Scene) -> list[Row]:
    """Of every task folder, also of those that park for want of it."""
    given = scene.settings.gateway.verifier_env
    users: dict[str, set[str]] = {}
    defaults: dict[str, bool] = {}
    for task in scene.reading.tasks:
        for variable in await aside(lambda path=task.path: verifier_variables(Path(path))):  # type: ignore[misc]
            users.setdefault(variable.name, set()).add(task.name)
            defaults[variable.name] = defaults.get(variable.name, True) and variable.has_default
    return judge.judge_key(
        [judge.Variable(name, frozenset(users[name]), _state(scene.environ, name), defaults[name], name in given) for name in sorted(users)]
    )


def _state(environ: Mapping[str, str], name: str) -> str:
    return "unset" if name not in environ else "set" if environ[name].strip() else "empty"


# ── who is told ──


async def notify(scene: Scene, *, send: bool) -> list[Row]:
    """:param send: a message goes over each channel; else only its way is looked at."""
    channels = channels_of(scene.settings.notify)
    return judge.notify([await (_sent(scene, channel) if send else _dry(scene, channel)) for channel in channels])


async def _sent(scene: Scene, channel: Channel) -> judge.ChannelSeen:
    notice = Notice("test", "test", "this is a test", "sent by marathonctl preflight --notify")
    message = message_of(notice, campaign=scene.settings.campaign.name, ledger_id=scene.book.ledger_id or "", now_ms=scene.clock.wall_ms())
    answer = await channel.tell(message)
    return judge.ChannelSeen(channel.name, answer.ok, answer.words, sent=True)


async def _dry(scene: Scene, channel: Channel) -> judge.ChannelSeen:
    if isinstance(channel, Command):
        there = shutil.which(channel.argv[0])
        words = f"{there} is there" if there else f"{channel.argv[0]}: no such program, or not executable"
        return judge.ChannelSeen(channel.name, there is not None, words, sent=False)
    url = scene.settings.notify.webhook or ""
    why = await aside(lambda: _dial(url))
    shown = hidden_url(url) or ""
    return judge.ChannelSeen(channel.name, not why, f"{shown}: {why or 'its host is reached'}", sent=False)


def _dial(url: str) -> str:
    """Empty when whoever would take the POST takes a connection: the hook's host (with TLS), or the proxy on the way."""
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    target: Target | None = target_of(proxy or url)
    if target is None:
        return "this is no address"
    try:
        with socket.create_connection(target, timeout=DIAL_S) as connection:
            if proxy is None and parts.scheme == "https":
                with ssl.create_default_context().wrap_socket(connection, server_hostname=parts.hostname):
                    pass
    except ssl.SSLError as error:
        return f"TLS: {getattr(error, 'verify_message', '') or 'no handshake'}"
    except socket.gaierror:
        return "its name cannot be resolved"
    except OSError as error:
        return (error.strerror or "no answer in time").lower()
    return ""


# ── the way to the model ──


async def gateway(scene: Scene) -> Row:
    sign = await aside(lambda: _sign(scene))
    troubles = [words for words in (sign.config_error, sign.journal_error) if words]
    troubles += [f"route {name}: {why}" for name, why in sign.key_errors.items()]
    return judge.gateway(bool(scene.settings.gateway.routes), sign.away, troubles)


def _sign(scene: Scene) -> SignOfLife:
    return read_sign_of_life(gateway_folder(scene.settings), scene.clock)


async def route(scene: Scene, name: str, section: RouteSection) -> list[Row]:
    """The way and its key: one request."""
    problem, asked = await provider.ask(name, section, scene.clock)
    settings = scene.settings
    model = settings.codex.model if settings.drives_codex and name == settings.gateway.agents_route else None
    sign = await aside(lambda: _sign(scene))
    words = "the gateway is away" if sign.away else sign.key_errors.get(name, "the running gateway can read it")
    return [judge.provider(name, asked), provider.key_row(name, section, problem, asked, model=model, gateway=words)]
