"""What a submission of this configuration, or the next start, would be refused for, where its campaign was submitted before: said before.

Owns the look at the ledger and at what is staged.  Must not word what changed: the refusal does (:mod:`marathond.ledger.verbs.campaigns`).
"""

from __future__ import annotations

from functools import partial

from marathond.cli.output import note
from marathond.core.canonical import canonical_json
from marathond.core.errors import LedgerRefused
from marathond.core.text import clean
from marathond.ledger.verbs.campaigns import campaign_by_name, changed_since
from marathond.service.picture.reader import reading
from marathond.service.settings import Settings
from marathond.service.staged import look_at_trees
from marathond.service.submission import arm_rows
from marathond.service.treatment import campaign_treatment, treatment_hash

AT_THE_NEXT_START = "a running marathond takes a submission and goes on with that folder; its next start is refused"
"""Of what only a start reads again, the folder of the artifacts."""


def changed_now(settings: Settings) -> tuple[str, ...]:
    """A sentence each; without a ledger nothing was submitted.  What cannot be told is a note on stderr."""
    name = settings.campaign.name
    try:
        with reading(settings.daemon.ledger) as c:
            if campaign_by_name(c, name) is None:
                return ()
        # What is staged lies on a disk that may be slow: the ledger is not held meanwhile.
        seen = look_at_trees(settings)
        absent = {package: look.why for package, look in seen.items() if look.tree is None}
        packages = {package: look.tree.package_id for package, look in seen.items() if look.tree is not None}
        arms = [arm for arm in settings.arm_models(packages) if not absent or arm.codex is None]
        for package, why in absent.items():
            note(f"note: whether arms with {package} are those of the submitted campaign is unknown: {clean(why)}")
        treatment = campaign_treatment(settings)
        ask = partial(
            changed_since,
            name=name,
            treatment_hash=treatment_hash(treatment),
            treatment_json=canonical_json(treatment),
            arms=arm_rows(arms),
        )
        with reading(settings.daemon.ledger) as c:
            if (row := campaign_by_name(c, name)) is None:
                return ()
            submitted = ask(c, out_dir=row.out_dir)
            started = [why for why in ask(c, out_dir=str(settings.daemon.out_dir)) if why not in submitted]
        return (*(f"{why} ({AT_THE_NEXT_START})" for why in started), *submitted)
    except LedgerRefused:
        return ()  # the look at the tasks, in the same command, says what is in the way (differing.py): one cause, one line
