"""Are the things by which we count alive?  Each denominator's source, looked at by itself, read-only and without a daemon.

A monitor that counts in the wrong place says OK all night (fault e01), and one whose source has died counts zeros (fault e04).  So every
row says what was looked at, how much of how much was seen, of which campaign; and what was not looked at is unknown, never ok.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from marathond.core.money import MODEL_KINDS
from marathond.flow.auditor import LOOKED
from marathond.ledger.verbs import networks, pools, runs, settings
from marathond.ledger.verbs.settings import Observation
from marathond.ledger.verbs.sql import marks, scalar
from marathond.service.doctor import sources_files, sources_gateway
from marathond.service.doctor.source import (
    DEAD,
    FRESH_MS,
    HOUSE,
    NOTHING,
    OK,
    UNKNOWN,
    Place,
    Source,
    ago,
)

SAID: Mapping[str, str] = {"engine": "does the engine answer", "disk": "free space", "waiting": "what cells wait for"}
HOURLY: Mapping[str, str] = {"clock_offset": "clocks of the file systems"}
HOURLY_MS = 2 * 3_600_000 + 600_000
AUDIT_MS = 3 * 60_000
"""Without an event there is a look a minute, and a look at a large campaign may take its time."""


def look(place: Place) -> list[Source]:
    """Every source, in the order in which a person asks for them."""
    return [
        *_daemon(place),
        *_observed(place),
        *_networks(place),
        *sources_gateway.look(place),
        *_requests(place),
        *_receipts(place),
        *sources_files.exports(place),
        *_audit(place),
        *_notices(place),
        *_findings(place),
    ]


def at_rest(place: Place) -> str:
    """Why nobody needs to look any more: the daemon was stopped in order and no cell of the campaign is to be run.  Empty: they must."""
    run = runs.last_run(place.c)
    if run is None or run.stopped_at_ms is None or place.daemon.alive is not False:
        return ""
    if place.count("SELECT count(*) FROM campaign WHERE campaign_id = ? AND origin = 'import'"):
        return "imported, and nothing of it is ever run"
    left = place.count("SELECT count(*) FROM cell_state WHERE campaign_id = ? AND state IN ('open', 'claimed')")
    return "" if left else "nothing is left to run"


def _missed(place: Place) -> tuple[str, str]:
    """The verdict on a word of the daemon that is missing or old, and what is to be added to it."""
    if place.daemon.alive:
        return DEAD, ""
    rest = at_rest(place)
    return (NOTHING, f"; {rest}") if rest else (UNKNOWN, "")


def _daemon(place: Place) -> Iterator[Source]:
    run = runs.last_run(place.c)
    if run is None:
        yield Source("daemon", HOUSE, DEAD, 0, 1, "daemons", "none ever ran on this ledger: nobody looks")
        return
    age = place.now_ms - run.seen_at_ms
    if place.daemon.alive is None:
        yield Source("daemon", HOUSE, UNKNOWN, None, 1, "daemons", place.daemon.why)
    elif not place.daemon.alive:
        words, rest = f"not running ({place.daemon.why}), last seen {ago(age)} ago", at_rest(place)
        yield Source("daemon", HOUSE, NOTHING if rest else DEAD, 0, 1, "daemons", f"{words}; {rest}" if rest else words)
    elif age > FRESH_MS:
        yield Source("daemon", HOUSE, DEAD, 0, 1, "daemons", f"pid {run.pid} is there, and has written nothing for {ago(age)}")
    else:
        yield Source("daemon", HOUSE, OK, 1, 1, "daemons", f"pid {run.pid}, last sign {ago(age)} ago")


def _observed(place: Place) -> Iterator[Source]:
    """A source that a living daemon has stopped to tell is dead; one of a daemon that is away is unknown."""
    said, newest = settings.observations(place.c), runs.last_run(place.c)
    run_id = None if newest is None else newest.run_id
    for keys, most_ms in ((SAID, FRESH_MS), (HOURLY, HOURLY_MS)):
        for key, what in keys.items():
            verdict, why = _age(said.get(key), run_id, most_ms, place)
            yield Source(f"observation {key}", HOUSE, verdict, int(verdict == OK), 1, "observations", f"{what}: {why}")


def _age(seen: Observation | None, run_id: int | None, most_ms: int, place: Place) -> tuple[str, str]:
    bad, rest = _missed(place)
    if seen is None:
        return bad, f"never said{rest}"
    age = place.now_ms - seen.at_ms
    if seen.run_id != run_id:
        return bad, f"last said {ago(age)} ago, by an earlier life of the daemon{rest}"
    if age > most_ms:
        return bad, f"last said {ago(age)} ago, must be within {ago(most_ms)}{rest}"
    if age < -most_ms:
        return UNKNOWN, f"said {ago(-age)} in the future: a clock was set"
    return (OK, f"said {ago(age)} ago") if place.daemon.alive else (bad, f"said {ago(age)} ago, and nobody looks any more{rest}")


def _networks(place: Place) -> Iterator[Source]:
    listed = {engine: at for engine, _, at in networks.networks_seen(place.c)}
    found = pools.pools(place.c)
    missed, rest = _missed(place)
    if not found:
        yield Source("networks", HOUSE, missed if rest else UNKNOWN, None, None, "pools", f"no pool was ever set{rest}")
    for pool in found:
        at = pool.observed_at_ms if pool.mode == "auto" else max(filter(None, (pool.observed_at_ms, listed.get(pool.engine))), default=None)
        words = "the engine's networks were never listed" if at is None else f"listed {ago(place.now_ms - at)} ago"
        fresh = at is not None and place.now_ms - at <= FRESH_MS
        # A lease that stands is not at rest, whatever the campaign is: its network may be there.
        verdict = OK if fresh and place.daemon.alive else UNKNOWN if rest and pool.live else missed
        taken = f"{pool.live} of {pool.cap} leased, {pool.leaked} leaked{rest}"
        yield Source(f"networks {pool.engine}", HOUSE, verdict, int(verdict == OK), 1, "pools", f"{words}; {taken}")


_KINDS = f"({marks(MODEL_KINDS)})"
_ASKED = f"""
SELECT count(*) FROM trial JOIN arm USING (arm_id) JOIN trial_agent USING (trial_id)
WHERE campaign_id = ? AND kind IN {_KINDS} AND ended_at_ms IS NOT NULL"""


def _requests(place: Place) -> Iterator[Source]:
    kinds = tuple(sorted(MODEL_KINDS))
    total = place.count(_ASKED, *kinds)
    seen = place.count(f"{_ASKED} AND EXISTS (SELECT 1 FROM model_request AS r WHERE r.trial_id = trial.trial_id)", *kinds)
    if not total:
        yield Source("requests", place.name, NOTHING, 0, 0, "ended agents that may ask a model")
        return
    why = "none of them made a request that the ledger knows of: tokens and money are not counted" if not seen else ""
    none = f"{total - seen} made none" if 0 < seen < total else ""
    yield Source("requests", place.name, OK if seen else DEAD, seen, total, "ended agents with requests", why or none)


_GRADED = f"{_ASKED} AND state IN ('scored', 'review')"
_NO_RECEIPT = "NOT EXISTS (SELECT 1 FROM receipt WHERE receipt.trial_id = trial.trial_id)"
_NAMED = (
    """EXISTS (SELECT 1 FROM finding WHERE code IN ('not_collected', 'receipt_invalid') AND subject = printf('t%04d', trial.trial_id))"""
)


def _receipts(place: Place) -> Iterator[Source]:
    """A receipt that is missing must have been named; one that vanished in silence is a source that died."""
    kinds = tuple(sorted(MODEL_KINDS))
    total = place.count(_GRADED, *kinds)
    missing = place.count(f"{_GRADED} AND {_NO_RECEIPT}", *kinds)
    silent = place.count(f"{_GRADED} AND {_NO_RECEIPT} AND NOT {_NAMED}", *kinds)
    if not total:
        yield Source("receipts", place.name, NOTHING, 0, 0, "graded trials that asked a model")
        return
    why = f"{silent} are missing and nothing says why" if silent else f"{missing} could not be had, each named" if missing else ""
    bad = silent or missing == total
    yield Source("receipts", place.name, DEAD if bad else OK, total - missing, total, "graded trials with a receipt", why)


def _audit(place: Place) -> Iterator[Source]:
    """Whether the rules are asked at all: nothing found and nobody looked are the same in the list of findings."""
    said, newest = settings.observations(place.c).get(LOOKED), runs.last_run(place.c)
    verdict, why = _age(said, None if newest is None else newest.run_id, AUDIT_MS, place)
    value = said.value if said is not None and isinstance(said.value, dict) else {}
    blind = [str(code) for code in value.get("blind", ())]
    total = value.get("rules")
    name = str(value.get("campaign", place.name))
    if verdict == OK and (not isinstance(total, int) or total <= len(blind)):
        verdict, why = DEAD, f"{why}, and no rule could see"
    words = f"the rules were asked: {why}" + (f"; could not see: {', '.join(blind)}" if blind else "")
    seen = total - len(blind) if isinstance(total, int) else None
    yield Source("audit", name, verdict, seen, total if isinstance(total, int) else None, "rules that could see", words)


def _notices(place: Place) -> Iterator[Source]:
    total = int(scalar(place.c, "SELECT count(*) FROM notice_sending"))
    told = int(scalar(place.c, "SELECT count(*) FROM notice_sending WHERE told_at_ms IS NOT NULL"))
    newest = place.c.execute(
        """SELECT told_at_ms, gave_up_at_ms, tries, answer FROM notice_sending JOIN notice USING (notice_id)
           WHERE tries > 0 ORDER BY notice_id DESC, channel LIMIT 1"""
    ).fetchone()
    if not total:
        # A notice without a sending was written by a daemon that has no channel.
        unsent = int(scalar(place.c, "SELECT count(*) FROM notice"))
        words = f"{unsent} notices had no channel to go over: see [notify]" if unsent else "nothing was to be told so far"
        yield Source("notices", HOUSE, UNKNOWN if unsent else NOTHING, 0, unsent, "notices told", words)
    elif newest is None:
        yield Source("notices", HOUSE, DEAD, 0, total, "sendings told", "none was tried")
    elif newest["told_at_ms"] is None:
        words = f"the newest one failed after {newest['tries']} tries: {newest['answer']}"
        yield Source("notices", HOUSE, DEAD, told, total, "sendings told", words)
    else:
        words = f"the newest one {ago(place.now_ms - newest['told_at_ms'])} ago"
        yield Source("notices", HOUSE, OK, told, total, "sendings told", words)


def _findings(place: Place) -> Iterator[Source]:
    """Times that lie in the future say that a clock was set: ages and "for how long" then mislead (fault e06)."""
    total = int(scalar(place.c, "SELECT count(*) FROM finding WHERE closed_at_ms IS NULL"))
    late = int(
        scalar(
            place.c,
            "SELECT count(*) FROM finding WHERE closed_at_ms IS NULL AND (seen_at_ms > ?1 OR opened_at_ms > seen_at_ms)",
            (place.now_ms + FRESH_MS,),
        )
    )
    alive = place.daemon.alive
    missed, rest = _missed(place)
    why = f"{late} have times in the future: a clock was set" if late else f"nobody looks any more{rest}" if not alive else ""
    verdict = DEAD if late else OK if alive else missed
    yield Source("findings", HOUSE, verdict, total - late, total, "open findings with sound times", why)
