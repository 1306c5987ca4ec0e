"""/metrics: what the page shows, as samples for Prometheus.

Owns names, types and labels, which are an interface (docs/metrics.md).  What is unknown has no sample, never 0 (fault e04).  Labels are
names of arms, states, codes and the like, never of trials or tasks: their number does not grow with the campaign.
"""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from marathond import __version__
from marathond.core.errors import MarathonError
from marathond.core.money import NUSD
from marathond.core.text import clean
from marathond.ledger.verbs import board as verbs
from marathond.service.page.place import Place, now_ms
from marathond.service.picture.reader import campaign_id, reading
from marathond.service.picture.status import Status, gather

CONTENT_TYPE = CONTENT_TYPE_LATEST
REQUESTS_MAX, REQUESTS_MS = 2_000, 600_000
"""Of the quantiles of the gateway: the newest requests, of the last ten minutes."""
QUANTILES = (0.5, 0.9, 0.99)
LABEL_MAX = 120


def exposition(place: Place) -> bytes:
    """The whole answer, of one instant.  A ledger that cannot be read leaves ``marathond_ledger_readable 0`` and what needs none."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(place))
    return generate_latest(registry)


class _Samples(Collector):
    def __init__(self, place: Place) -> None:
        self.place = place

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield _gauge("build_info", "The version that serves this.", [({"version": __version__, "python": platform.python_version()}, 1)])
        try:
            with reading(self.place.ledger) as c:
                campaign = self.place.shown_campaign(c)
                found = campaign_id(c, campaign)
                status = gather(c, campaign, self.place.control_socket, now_ms(), self.place.gateway)
                samples = list(_samples(c, None if found is None else found[0], status, self.place))
        except MarathonError:
            yield _gauge("ledger_readable", "1: the ledger was read for this answer; 0: it could not be.", [({}, 0)])
            return
        yield _gauge("ledger_readable", "1: the ledger was read for this answer; 0: it could not be.", [({}, 1)])
        yield from samples


Rows = Sequence[tuple[dict[str, str], float]]


def _gauge(name: str, words: str, rows: Rows) -> Metric:
    return _family(GaugeMetricFamily(f"marathond_{name}", words, labels=_labels(rows)), rows)


def _counter(name: str, words: str, rows: Rows) -> Metric:
    """``name`` without ``_total``."""
    return _family(CounterMetricFamily(f"marathond_{name}", words, labels=_labels(rows)), rows)


def _labels(rows: Rows) -> list[str]:
    return list(rows[0][0]) if rows else []


def _family(family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> Metric:
    for labels, value in rows:
        family.add_metric([clean(text, LABEL_MAX) for text in labels.values()], value)
    return family


def _some(value: float | None) -> list[tuple[dict[str, str], float]]:
    return [] if value is None else [({}, value)]


def _samples(c: sqlite3.Connection, campaign: int | None, status: Status, place: Place) -> Iterator[Metric]:
    """A family without a sample is left out: nobody saw it."""
    for family in _all(c, campaign, status, place):
        if family.samples:
            yield family


def _all(c: sqlite3.Connection, campaign: int | None, status: Status, place: Place) -> Iterator[Metric]:
    yield from _daemon(status)
    yield from _house(status)
    yield from _files(place.ledger)
    yield from _gateway(c, status, place)
    if campaign is None:
        return
    of = {"campaign": status.campaign or ""}
    yield from _cells(status, of)
    yield from _model(c, campaign, of)
    voids = verbs.voids_by_code(c, campaign)
    words = "Standing voids, by arm and code; one that is taken back counts no more."
    yield _gauge("voids", words, [({**of, "arm": arm, "code": code}, count) for arm, code, count in voids])
    yield from _money(status, of)


def _daemon(status: Status) -> Iterator[Metric]:
    life, run = status.life, status.life.run
    yield _gauge("daemon_up", "1: the daemon of this ledger runs; 0: it does not; no sample: unknown.", _some(_flag(life.alive)))
    if run is not None:
        yield _gauge("daemon_run", "Number of the newest daemon life (its epoch).", [({}, run.run_id)])
        yield _gauge("daemon_start_time_seconds", "When it began, since 1970.", [({}, run.started_at_ms / 1000)])
        yield _gauge("daemon_seen_time_seconds", "Its last sign of life in the ledger, since 1970.", [({}, run.seen_at_ms / 1000)])
        yield _gauge("daemon_ready", "1: it has said READY.", [({}, float(run.ready_at_ms is not None))])
    states = ("healthy", "degraded", "unknown", "down")
    yield _gauge(
        "health", "1 for the word that status says, 0 for the others.", [({"health": s}, float(status.health == s)) for s in states]
    )
    seen = status.loop or {}
    lags = [(key, seen.get(f"{key}_ms")) for key in ("p50", "p99", "max")]
    known = [({"quantile": key}, value / 1000) for key, value in lags if isinstance(value, int | float)]
    yield _gauge("loop_lag_seconds", "How late the daemon's event loop was, within the last minute: p50, p99, max.", known)
    answers = None if status.engine is None else _flag(status.engine.get("ok") is True)
    yield _gauge("engine_up", "1: the engine answers the daemon.", _some(answers))


def _flag(value: bool | None) -> float | None:
    return None if value is None else float(value)


def _house(status: Status) -> Iterator[Metric]:
    pools = status.pools
    yield _gauge("pool_used", "Networks that may exist and are ours.", [({"engine": p.engine}, p.ours) for p in pools])
    yield _gauge("pool_leaked", "Those of them that could not be removed.", [({"engine": p.engine}, p.leaked) for p in pools])
    room = [({"engine": p.engine}, float(p.capacity)) for p in pools if p.capacity is not None]
    yield _gauge("pool_capacity", "How many may be ours at one time.", room)
    others = [({"engine": p.engine}, float(p.foreign)) for p in pools if p.foreign is not None]
    yield _gauge("pool_foreign", "Networks of others on the engine.", others)
    disks = [row for row in status.disk or [] if isinstance(row.get("free_bytes"), int) and isinstance(row.get("total_bytes"), int)]
    yield _gauge(
        "disk_free_bytes", "Of the file systems that are watched.", [({"path": str(d.get("path"))}, d["free_bytes"]) for d in disks]
    )
    yield _gauge("disk_total_bytes", "Their size.", [({"path": str(d.get("path"))}, d["total_bytes"]) for d in disks])
    counts: dict[tuple[str, str, str], int] = {}
    for row in status.findings:
        key = (row.code, row.severity, "yes" if row.acked_at_ms is not None else "no")
        counts[key] = counts.get(key, 0) + 1
    rows = [({"code": code, "severity": severity, "acknowledged": acked}, n) for (code, severity, acked), n in sorted(counts.items())]
    yield _gauge("findings_open", "Open findings of the campaign and the house.", rows)
    yield _gauge("stops", "1: admission is closed for this reason.", [({"kind": stop.kind}, 1) for stop in status.stops])
    waiting = [({"code": str(row.get("code", ""))}, row["count"]) for row in status.waiting or [] if isinstance(row.get("count"), int)]
    yield _gauge("waiting_cells", "Open cells by what they wait for.", waiting)


def _files(ledger: Path) -> Iterator[Metric]:
    for name, words, suffix in (("ledger_bytes", "Size of the ledger.", ""), ("wal_bytes", "Size of its write-ahead log.", "-wal")):
        yield _gauge(name, words, _some(_size(ledger.with_name(ledger.name + suffix), absent=0 if suffix else None)))


def _size(path: Path, *, absent: int | None) -> int | None:
    """``absent``: what no such file means; None: unknown."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return absent
    except OSError:
        return None


def _cells(status: Status, of: dict[str, str]) -> Iterator[Metric]:
    arms = status.arms
    states = ("open", "claimed", "done", "parked", "review")
    rows = [({**of, "arm": arm.arm, "state": state}, getattr(arm, state)) for arm in arms for state in states]
    yield _gauge("cells", "Cells by arm and state.", rows)
    phases = ("reserved", "preparing", "running", "verifying")
    live = {phase: sum(trial.phase == phase for trial in status.live) for phase in phases}
    yield _gauge("trials_live", "Trials in work, by phase.", [({**of, "phase": phase}, count) for phase, count in live.items()])
    for name, words in (("reward", "reward"), ("partial", "partial score"), ("test_rate", "share of tests passed")):
        known = [({**of, "arm": arm.arm}, getattr(arm, name)) for arm in arms if getattr(arm, name) is not None]
        yield _gauge(f"mean_{name}", f"Mean {words} over the arm's done cells.", known)
    eta = [] if status.eta.ms is None else [(of, status.eta.ms / 1000)]
    yield _gauge("eta_seconds", "Estimated time until the last open cell ends.", eta)


def _model(c: sqlite3.Connection, campaign: int, of: dict[str, str]) -> Iterator[Metric]:
    usage = verbs.usage_by_arm(c, campaign)
    kinds = ("input", "cached", "cache_write", "output", "reasoning")
    rows = [({**of, "arm": row.arm, "kind": kind}, row.sums[f"{kind}_tokens"]) for row in usage for kind in kinds]
    yield _counter("tokens", "Tokens of agents, by arm and kind; cached and cache_write are parts of input, reasoning of output.", rows)
    for name, words in (
        ("requests", "Requests of agents to their model."),
        ("failed", "Those without a whole answer, or with an error."),
        ("unknown", "Those whose use of tokens is unknown."),
        ("retries", "Attempts of the gateway's beyond the first."),
        ("rate_limited", "Those of them that were answered 429."),
    ):
        family = "model_requests" if name == "requests" else f"model_requests_{name}"
        yield _counter(family, words, [({**of, "arm": row.arm}, row.sums[name]) for row in usage])
    held = [({**of, "arm": row.arm}, row.sums["held_ms"] / 1000) for row in usage]
    yield _counter("model_held_seconds", "Time for which the gateway made requests wait, added up.", held)


def _money(status: Status, of: dict[str, str]) -> Iterator[Metric]:
    money = status.money
    if money is None:
        return
    if not money.unpriced:
        yield _gauge(
            "spent_dollars",
            "What is known to be spent, voids included; no sample while a model has no price.",
            [(of, money.spent_nusd / NUSD)],
        )
    yield _gauge("spent_known_dollars", "At least so much is spent.", [(of, money.spent_nusd / NUSD)])
    yield _gauge("spent_voids_dollars", "Of it, by voided trials.", [(of, money.voids_nusd / NUSD)])
    for name, words, amount in (
        ("forecast_dollars", "Expected in the end.", money.forecast_nusd),
        ("cap_dollars", "The campaign's cap.", money.campaign_cap_nusd),
        ("trial_cap_dollars", "A trial's cap.", money.trial_cap_nusd),
    ):
        yield _gauge(name, words, [] if amount is None else [(of, amount / NUSD)])


def _gateway(c: sqlite3.Connection, status: Status, place: Place) -> Iterator[Metric]:
    provider = status.provider
    if provider is None:
        return
    yield _gauge("gateway_up", "1: the gateway gives signs of life.", [({}, float(provider.routes is not None))])
    if provider.routes is not None:
        yield _gauge("gateway_streams", "Requests that it carries now.", [({}, provider.streams)])
        yield _gauge("gateway_waiting", "Requests that wait, by route.", [({"route": r.route}, r.waiting) for r in provider.routes])
        used = [({"route": r.route}, float(r.tokens)) for r in provider.routes if r.tokens is not None]
        yield _gauge("gateway_minute_tokens", "Tokens of the running minute, by route.", used)
        limit = [({"route": r.route}, float(r.tokens_per_min)) for r in provider.routes if r.tokens_per_min is not None]
        yield _gauge("gateway_minute_tokens_limit", "At most so many.", limit)
    times = verbs.request_times(c, since_ms=status.now_ms - REQUESTS_MS, limit=REQUESTS_MAX)
    words = "of the newest requests of agents, at most 2,000, begun within ten minutes: provider's answer included."
    for name, what, values in (
        ("first_byte", "Time to the first byte", [row[0] for row in times if row[0] is not None]),
        ("request", "Whole time", [row[1] for row in times if row[1] is not None]),
        ("held", "Time held back by the gateway", [row[2] for row in times]),
    ):
        rows = [({"quantile": f"{share:g}"}, rank(values, share) / 1000) for share in QUANTILES] if values else []
        yield _gauge(f"gateway_{name}_seconds", f"{what}, {words}", rows)


def rank(values: Sequence[int], share: float) -> float:
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]
