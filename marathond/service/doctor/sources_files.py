"""Artifacts: is every trial at rest exported, and does out_dir really hold what the ledger says (fault e01)?

Owns the sample.  Files that an agent may have written are read by the rules for hostile folders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from marathond.core.errors import ArtifactError
from marathond.core.names import trial_label
from marathond.ledger.verbs.sql import LIVE
from marathond.service.doctor.source import DEAD, NOTHING, OK, RESTED_MS, UNKNOWN, Place, Source
from marathond.tasks.artifacts import read_bounded

TRIALS_AT_MOST, FILES_AT_MOST, BYTES_AT_MOST = 12, 2, 1 << 20
"""The sample: trials spread over the campaign, the newest among them, and some small files of each."""

_RESTED = f"""
SELECT count(*) FROM trial JOIN arm USING (arm_id) JOIN claim USING (claim_id)
WHERE campaign_id = ? AND state NOT IN {LIVE}
    AND NOT EXISTS (SELECT 1 FROM void WHERE void.trial_id = trial.trial_id AND code = 'ledger_copied')"""
_EXPORTED = "EXISTS (SELECT 1 FROM artifact_export AS e WHERE e.trial_id = trial.trial_id)"
_LATE = f"{_RESTED} AND released_at_ms <= ? AND NOT {_EXPORTED}"
"""Only here does an age count: an export comes after the teardown.  A campaign of a few minutes has trials at rest, too."""


def exports(place: Place) -> Iterator[Source]:
    if place.campaign is None:
        yield Source("exports", place.name, NOTHING, 0, 0, "trials at rest")
        return
    old = place.now_ms - RESTED_MS
    origin = place.c.execute("SELECT origin, out_dir FROM campaign WHERE campaign_id = ?", (place.campaign[0],)).fetchone()
    if origin["origin"] == "import":
        yield Source("exports", place.name, NOTHING, 0, 0, "trials at rest", "imported: its files lie where they were read from")
        return
    total, seen, late = place.count(_RESTED), place.count(f"{_RESTED} AND {_EXPORTED}"), place.count(_LATE, old)
    words = [f"{late} have been at rest for more than half an hour and lie only in state_dir"] if late else []
    if coming := total - seen - late:
        words.append(f"{coming} on {'its' if coming == 1 else 'their'} way: being torn down, or at rest for less than half an hour")
    verdict = DEAD if late else OK if seen else NOTHING
    yield Source("exports", place.name, verdict, seen, total, "trials at rest that are exported", "; ".join(words))
    yield _held(place, Path(str(origin["out_dir"])))


def _held(place: Place, out_dir: Path) -> Source:
    """Folders and hashes of a sample of what was exported."""
    assert place.campaign is not None
    sql = """SELECT e.trial_id, folder FROM artifact_export AS e JOIN trial USING (trial_id) JOIN arm USING (arm_id)
             WHERE campaign_id = ? AND NOT EXISTS (SELECT 1 FROM prune AS p WHERE p.trial_id = e.trial_id AND kind = 'artifacts')
             ORDER BY e.trial_id DESC"""
    all_of = [(int(row[0]), str(row[1])) for row in place.c.execute(sql, (place.campaign[0],)).fetchall()]
    name, things = "out_dir", "files of a sample, by their hash"
    if not all_of:
        return Source(name, place.name, NOTHING, 0, 0, things)
    chosen = all_of[:: max(1, len(all_of) // TRIALS_AT_MOST)][:TRIALS_AT_MOST]
    seen = total = 0
    wrong: list[str] = []
    for trial_id, folder in chosen:
        try:
            if not (out_dir / folder).is_dir():
                wrong.append(f"{trial_label(trial_id)}: no folder {folder}")
                continue
            good, bad = _hashes(place, trial_id, out_dir / folder)
        except (OSError, ArtifactError) as error:
            return Source(name, place.name, UNKNOWN, seen, None, things, f"{trial_label(trial_id)}: {error}")
        seen, total, wrong = seen + good, total + good + len(bad), wrong + bad
    total = max(total, seen + len(wrong))
    words = f"{len(chosen)} of {len(all_of)} exported trials looked at in {out_dir}"
    if wrong:
        return Source(name, place.name, DEAD, seen, total, things, f"{words}; {'; '.join(wrong[:3])}")
    if not total:
        return Source(name, place.name, UNKNOWN, 0, 0, things, f"{words}, and none has a file small enough to be read")
    return Source(name, place.name, OK, seen, total, things, words)


def _hashes(place: Place, trial_id: int, folder: Path) -> tuple[int, list[str]]:
    """(files that are as the ledger says, those that are not, in words)."""
    rows = place.c.execute(
        "SELECT path, sha256 FROM artifact WHERE trial_id = ? AND sha256 <> '' AND size_bytes <= ? ORDER BY size_bytes, path LIMIT ?",
        (trial_id, BYTES_AT_MOST, FILES_AT_MOST),
    ).fetchall()
    good, bad = 0, []
    for path, sha256 in rows:
        data = read_bounded(folder, str(path), BYTES_AT_MOST)
        if data is not None and hashlib.sha256(data).hexdigest() == sha256:
            good += 1
        else:
            bad.append(f"{trial_label(trial_id)}: {path} " + ("is not there" if data is None else "is not what was exported"))
    return good, bad
