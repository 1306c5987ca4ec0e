"""Rules over the house: what the daemon, its ledger and its sources say of themselves, and what they have stopped saying.

Pure.  What has a finding of its own where it happens is not said again here: a low disk, a clock that is off, a leaked lease the moment
it leaks, a model without a price.  These rules say what nobody raises: that a source went silent, or that something has lasted too long.
"""

from __future__ import annotations

from marathond.core.audit.facts import Facts, TrialFact
from marathond.core.audit.rule import Found, Look, Rule
from marathond.core.audit.words import labels, lasting, plural, run_here, some
from marathond.core.names import trial_label

LEAKED_MS = 30 * 60_000
WAL_BYTES = 64 << 20
"""Checkpoints keep it at a few megabytes, and cut back what was larger, unless a reader holds an old snapshot."""
REQUESTS_AT_LEAST, FAILED_SHARE = 100, 0.1
REVIEWS, REVIEW_MS = 5, 24 * 3_600_000
UNACKED_MS = 24 * 3_600_000
ALARMS = frozenset({"error", "stop_loss"})
SILENT_MS = 5 * 60_000
"""Every look of the scheduler says these, each few seconds; an engine that does not answer is said, too."""
TOLD = ("engine", "waiting")
DISK, CLOCK = "disk", "clock_offset"
CLOCK_MS = 2 * 3_600_000 + 600_000
"""Measured hourly: two in a row are missing."""
EXPORT_MS = 30 * 60_000
RECEIPT_MS = 10 * 60_000
"""The receipt is made after the agent's end, while the verifier runs; at the latest before the export."""
REQUESTS_MEANT = 5
"""Requests of a trial that cannot all belong to a turn that never began."""
ASKED = f"graded trials that asked a model, at rest for {RECEIPT_MS // 60_000} minutes"
NO_DAEMON = "whether a daemon runs cannot be told"


def leases_leaked(facts: Facts) -> Look:
    found = []
    for engine in sorted({lease.engine for lease in facts.leases}):
        held = [lease for lease in facts.leases if lease.engine == engine]
        late = [lease for lease in held if (lease.leaked_ms or 0) >= LEAKED_MS]
        if late:
            cap = facts.pool_caps.get(engine)
            oldest = lasting(max(lease.leaked_ms or 0 for lease in late))
            named = some([f"{trial_label(lease.trial_id)} {lease.network}" for lease in late])
            words = f"{len(late)} of {plural(len(held), 'lease')} leaked for more than {lasting(LEAKED_MS)}, the oldest for {oldest}"
            found.append(Found("leases_leaked", "warning", engine, f"{words}; the pool holds {'unknown' if cap is None else cap}: {named}"))
    every = len(facts.leases) + facts.leases_released
    return Look(every, every, "leases", tuple(found))


def wal_large(facts: Facts) -> Look:
    size = facts.wal_bytes
    if size is None:
        return Look(0, 1, "log of the ledger", unseen="the size of the ledger's log was not to be had")
    who = some(facts.wal_readers) if facts.wal_readers else "a reader that cannot be seen from here (as root: fuser -v on the ledger)"
    words = f"the ledger's log has {size >> 20} MB, more than {WAL_BYTES >> 20} MB, kept from being taken in by {who}"
    found = (Found("wal_large", "warning", "ledger", words),) if size > WAL_BYTES else ()
    return Look(1, 1, "log of the ledger", found)


def gateway_errors(facts: Facts) -> Look:
    """Requests of all agents together: it is the way that fails, whoever goes it.  One arm alone is another rule's."""
    asking = [trial for trial in facts.trials if trial.asks_model]
    told = [trial for trial in asking if trial.requests is not None and trial.failed is not None]
    whole = sum(trial.requests or 0 for trial in told), sum(trial.failed or 0 for trial in told)
    spans = [("the whole campaign", *whole)]
    if facts.hour_requests is not None and facts.hour_failed is not None:
        spans.insert(0, ("the last hour", facts.hour_requests, facts.hour_failed))
    bad = [(span, of, failed) for span, of, failed in spans if of >= REQUESTS_AT_LEAST and failed >= FAILED_SHARE * of]
    found: tuple[Found, ...] = ()
    if bad:
        listed = "; ".join(f"{failed} of {of} in {span} ({100 * failed / of:.0f} %)" for span, of, failed in bad)
        found = (Found("gateway_errors", "warning", "gateway", f"requests without a whole answer, or with an error: {listed}"),)
    ended = [trial for trial in asking if trial.ended_by is not None]
    unseen = "no request of any agent is recorded" if ended and not told and facts.hour_requests is None else ""
    return Look(len(told), len(asking), "trials that ask a model", found, unseen)


def review_backlog(facts: Facts) -> Look:
    waiting = facts.reviews
    oldest = max((review.age_ms for review in waiting), default=0)
    found: tuple[Found, ...] = ()
    if len(waiting) >= REVIEWS or oldest >= REVIEW_MS:
        named = some([trial_label(review.trial_id) for review in sorted(waiting, key=lambda review: -review.age_ms)])
        count, cells = plural(len(waiting), "trial"), plural(facts.cells, "cell")
        words = f"waiting for a person: {count}, of {cells}; the oldest for {lasting(oldest)}: {named}"
        found = (Found("review_backlog", "warning", facts.campaign, words),)
    every = len(waiting) + facts.reviews_decided
    return Look(every, every, "reviews, open or decided", found)


def findings_unacked(facts: Facts) -> Look:
    alarms = [finding for finding in facts.findings if finding.severity in ALARMS]
    old = sorted((f for f in alarms if not f.acked and f.age_ms >= UNACKED_MS), key=lambda finding: -finding.age_ms)
    found: tuple[Found, ...] = ()
    if old:
        named = some([f"{finding.code} {finding.subject}".strip() for finding in old])
        words = f"{len(old)} of {len(alarms)} open errors nobody has acknowledged for more than {lasting(UNACKED_MS)}: {named}"
        found = (Found("findings_unacked", "warning", "findings", words),)
    every = len(facts.findings) + facts.findings_closed
    return Look(every, every, "findings, open or closed", found)


def _silence(facts: Facts, key: str, limit_ms: int) -> str | None:
    """For how long the present life has said nothing of ``key``, in words; None: it has, or has not had the time."""
    assert facts.daemon_up_ms is not None
    age_ms = facts.observations[key][1] if key in facts.observations else None
    if age_ms is None or age_ms > facts.daemon_up_ms:
        return f"never in this daemon's life of {lasting(facts.daemon_up_ms)}" if facts.daemon_up_ms > SILENT_MS else None
    return f"last {lasting(age_ms)} ago" if age_ms > limit_ms else None


def _blind(facts: Facts, things: str, of: int) -> Look | None:
    """A daemon that is known to be away says nothing, and need not."""
    if facts.daemon_alive is None:
        return Look(0, of, things, unseen=NO_DAEMON)
    if not facts.daemon_alive or facts.daemon_up_ms is None:
        return Look(0, 0, f"{things}; no daemon runs")
    return None


def daemon_blind(facts: Facts) -> Look:
    if (blind := _blind(facts, "words of the daemon", len(TOLD))) is not None:
        return blind
    found = [
        Found("daemon_blind", "error", key, f"a living daemon says every few seconds what it knows of {key}: said {silence}")
        for key in TOLD
        if (silence := _silence(facts, key, SILENT_MS)) is not None
    ]
    return Look(len(TOLD), len(TOLD), "words of the daemon", tuple(found))


def disk_unseen(facts: Facts) -> Look:
    if (blind := _blind(facts, "words about disks", 1)) is not None:
        return blind
    silence = _silence(facts, DISK, SILENT_MS)
    words = "" if silence is None else f"free space is looked at before each plan: said {silence}"
    seen = facts.observations.get(DISK)
    if silence is None and seen is not None and not seen[0]:
        words = "the last look saw no file system at all"
    found = (Found("disk_unseen", "error", "disk", words),) if words else ()
    return Look(1, 1, "words about disks", found)


def clock_unseen(facts: Facts) -> Look:
    """How far off a clock is, is a finding where it is measured (``clock_offset``)."""
    if (blind := _blind(facts, "roots", 1)) is not None:
        return blind
    silence = _silence(facts, CLOCK, CLOCK_MS)
    if silence is not None:
        words = f"file systems' clocks are compared with ours each hour: said {silence}"
        return Look(0, 1, "roots", (Found("clock_unseen", "warning", "clock", words),))
    value = facts.observations[CLOCK][0] if CLOCK in facts.observations else {}
    offsets = value if isinstance(value, dict) else {}
    found = [
        Found("clock_unseen", "warning", str(root), f"how far the clock of {root} is from ours could not be measured")
        for root, offset in sorted(offsets.items())
        if offset is None
    ]
    return Look(len(offsets) - len(found), len(offsets), "roots", tuple(found))


def exports_behind(facts: Facts) -> Look:
    """While ``export_failed`` is open it says why; this is for the exports of which nobody says anything.

    What was in work when the ledger was copied is the original's to export.
    """
    trials = facts.trials if facts.origin == "run" else ()
    resting = [trial for trial in trials if trial.rested_at_ms is not None and trial.void_code != "ledger_copied"]
    late = [t for t in resting if not t.exported and t.rested_at_ms is not None and facts.now_ms - t.rested_at_ms >= EXPORT_MS]
    found: tuple[Found, ...] = ()
    if late and not facts.open_codes.get("export_failed"):
        words = f"{len(late)} of {plural(len(resting), 'trial')} at rest have no export after {lasting(EXPORT_MS)}: {labels(late)}"
        found = (Found("exports_behind", "warning", facts.campaign, words),)
    return Look(len(resting), len(resting), run_here(facts, "trials at rest"), found)


def _asked(facts: Facts) -> list[TrialFact]:
    """Trials whose agent asks a model and has ended, long enough ago for all that is written afterwards."""
    if facts.origin != "run":
        return []
    ended = [t for t in facts.trials if t.asks_model and t.ended_by is not None and t.state in ("scored", "review")]
    return [t for t in ended if t.rested_at_ms is not None and facts.now_ms - t.rested_at_ms >= RECEIPT_MS]


def receipts_missing(facts: Facts) -> Look:
    asked = _asked(facts)
    without = [trial for trial in asked if trial.turns is None]
    found: tuple[Found, ...] = ()
    if without:
        words = f"{len(without)} of {plural(len(asked), 'graded trial')} that asked a model have no receipt: {labels(without)}"
        found = (Found("receipts_missing", "error", facts.campaign, words),)
    return Look(len(asked), len(asked), run_here(facts, ASKED), found)


def usage_missing(facts: Facts) -> Look:
    """Two sources tell of the same run; where one of them says nothing at all, it is dead.  Tokens that differ are another finding's."""
    asked = _asked(facts)
    both = [trial for trial in asked if trial.turns is not None]
    no_requests = [trial for trial in both if trial.turns and not trial.requests]
    # A first turn that was cut at the deadline may not be told of as begun: seen in real runs, with six requests and one command.
    silent = [trial for trial in both if not trial.turns and not trial.commands and not trial.budget_ended]
    no_turns = [trial for trial in silent if (trial.requests or 0) >= REQUESTS_MEANT]
    found = []
    if no_requests:
        words = f"{len(no_requests)} of {plural(len(both), 'receipt')} tell of turns, and the gateway of no request: {labels(no_requests)}"
        found.append(Found("usage_missing", "error", "gateway", words))
    if no_turns:
        words = f"{len(no_turns)} of {plural(len(both), 'receipt')} tell of no turn, and the gateway of requests: {labels(no_turns)}"
        found.append(Found("usage_missing", "error", "receipts", words))
    unseen = "no receipt is there to compare with" if asked and not both else ""
    return Look(len(both), len(asked), run_here(facts, ASKED), tuple(found), unseen)


RULES: tuple[Rule, ...] = (
    Rule(
        "leases_leaked",
        "warning",
        "Networks of ended trials cannot be removed and take room in the pool, so fewer cells run.",
        "`marathonctl pool`, then see what still hangs on them (docker network inspect); a restart of the engine frees most.",
        leases_leaked,
        ("b04",),
    ),
    Rule(
        "wal_large",
        "warning",
        "The ledger's log grows because some reader keeps an old snapshot open; it fills the disk in the end.",
        "End what the finding names, a sqlite3 shell or script with ledger.db open for long; the log shrinks by itself then.",
        wal_large,
    ),
    Rule(
        "gateway_errors",
        "warning",
        "Many requests of all arms fail on their way to the provider: scores may say more of the provider than of the agents.",
        "Look at the provider's status and `marathonctl status` (provider); pause until it answers, and void what it spoiled, by blocks.",
        gateway_errors,
        ("a01", "f15"),
    ),
    Rule(
        "review_backlog",
        "warning",
        "Doubtful trials wait for a person's decision, and their cells are missing from every table meanwhile.",
        "`marathonctl review` lists them with their age: decide, the oldest first.",
        review_backlog,
    ),
    Rule(
        "findings_unacked",
        "warning",
        "Errors have been open for a day and nobody has said that they are known.",
        "`marathonctl findings`; mend what can be mended, and `marathonctl ack --reason` for the rest.",
        findings_unacked,
        ("f15",),
    ),
    Rule(
        "daemon_blind",
        "error",
        "The daemon lives, but a part of it has stopped looking: what status shows of it is unknown, not well.",
        "Read its log; restart it (running trials go on), and report what the log says.",
        daemon_blind,
        ("e01", "e04", "b10"),
    ),
    Rule(
        "disk_unseen",
        "error",
        "Nobody looks at the free space any more, so a full disk would come unseen.",
        "See whether a file system hangs (df on state_dir and out_dir); restart the daemon.",
        disk_unseen,
        ("b12", "e04"),
    ),
    Rule(
        "clock_unseen",
        "warning",
        "How far a file system's clock is from the host's is not known, so times of artifacts may mislead.",
        "See whether state_dir and out_dir can be written to and answer in time.",
        clock_unseen,
        ("e05",),
    ),
    Rule(
        "exports_behind",
        "warning",
        "Ended trials have not been exported: their files lie only in state_dir and what is judged by exports cannot see them.",
        "Is a daemon running? Read its log for export_failed and for trials whose teardown does not end.",
        exports_behind,
    ),
    Rule(
        "receipts_missing",
        "error",
        "Graded trials that asked a model left no receipt, so turns, commands and treatment of them are unknown, not zero.",
        "Read the finding of each trial's collecting and its run directory; a changed shape of codex's files is the likeliest cause.",
        receipts_missing,
        ("e03",),
    ),
    Rule(
        "usage_missing",
        "error",
        "Receipt and gateway contradict each other about whether a model was asked at all: one of these two sources is dead.",
        "Is the gateway's journal taken in (findings gateway_*, journal_*)? Does the receipt still fit codex's files?",
        usage_missing,
        ("e01", "e03"),
    ),
)
