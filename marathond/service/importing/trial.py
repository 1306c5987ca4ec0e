"""One trial's folder, of the old scripts or of Harbor: its verifier's files, how it ended, what it cost.

Owns what makes it a result: the verifier came to its end, the reward is in the verifier's own files, and nothing but a spent budget ended
the trial early.  The score is core/score's; a ``result.json`` alone is never one, since nobody can check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marathond.core.money import NUSD
from marathond.core.payload import parse_json
from marathond.core.score import METRICS, REWARD_JSON, STAGES, Refusal, read_score
from marathond.core.text import printable
from marathond.flow.score_row import score_row
from marathond.ledger.verbs.imports import Details
from marathond.ledger.verbs.trials import Fact, ScoreRow
from marathond.service.importing.job import CONFIG, RESULT, Job, moment
from marathond.service.importing.seen import AGENT_TIMEOUT, DEADLINE, GOAL_TIMEOUT, NAME_MAX
from marathond.service.importing.tree import FOLDER, UNREADABLE, Parts, Tree
from marathond.tasks.scorefiles import collect

VERIFIER, AGENT = "verifier", "agent"
RECEIPT, TRAJECTORY = "goal_receipt.json", "trajectory.json"
MAX_RECEIPT_KEYS = 40
OURS = "(io)"
"""How a refusal ends that the operating system gave us."""
MAX_INTEGER = 2**63 - 1
FINAL = "final_metrics"


@dataclass(frozen=True, slots=True)
class TrialRead:
    """``document`` None: no readable result.json.  ``finished``: somebody says that it came to an end.  ``why`` empty: a valid result."""

    name: str
    document: Mapping[str, Any] | None
    finished: bool
    errors: tuple[tuple[str, str], ...]
    score: ScoreRow | None
    why: str
    details: Details
    facts: tuple[Fact, ...]
    sha256: str


def looks_like_trial(tree: Tree, parts: Parts) -> bool:
    return any(tree.has(parts, name, FOLDER) for name in (VERIFIER, AGENT)) or tree.has(parts, RESULT)


def read_trial(tree: Tree, parts: Parts, job: Job) -> TrialRead:
    """Everything of one trial's folder that an import takes."""
    document, raw = tree.table((*parts, RESULT))
    files, unread = collect(tree.root, "/".join((*parts, VERIFIER)))
    for refusal in unread:
        if refusal.why.endswith(OURS):  # no property of the trial: a person may read it with other rights, or later
            tree.note(UNREADABLE, (*parts, VERIFIER, refusal.source), refusal.why)
    receipt, receipt_raw = tree.table((*parts, AGENT, RECEIPT))
    errors = tuple(_errors(document, parts[-1], job))
    finished = _finished(document, parts[-1], job)
    hasher = hashlib.sha256()
    for name, data in (*sorted(files.items()), (RESULT, raw), (RECEIPT, receipt_raw), ("ended", repr((finished, errors)).encode())):
        hasher.update(f"{name}\0{len(data)}\0".encode("utf-8", "surrogatepass") + data)
    score, why = _verdict(files, unread, document, errors, finished=finished)
    return TrialRead(
        parts[-1], document, finished, errors, score, why, _details(tree, parts, document or {}, receipt or {}, errors, job),
        tuple(_facts(tree, parts, receipt or {}, errors)), hasher.hexdigest(),
    )  # fmt: skip


def spent_budget(kind: str, message: str) -> bool:
    """The agent's own deadline: an ordinary end of a long task (faults a04, c10)."""
    return kind == AGENT_TIMEOUT or message.strip() == GOAL_TIMEOUT


def _verdict(
    files: Mapping[str, bytes],
    unread: Sequence[Refusal],
    document: Mapping[str, Any] | None,
    errors: Sequence[tuple[str, str]],
    *,
    finished: bool,
) -> tuple[ScoreRow | None, str]:
    """The score that its files hold, and why it is no valid result, empty: it is."""
    reading = read_score(files, verifier_exited=finished, unread=unread)
    score = None if reading.reward is None else score_row(reading, reading.reward)
    broken = [(kind, message) for kind, message in errors if not spent_budget(kind, message)]
    if broken:
        kind, message = broken[0]
        return score, f"it ended by {kind}" + (f": {message}" if message else "")
    if not finished:
        return None, "its verifier never finished: no result.json says that it did"
    if not files and not unread:
        claimed = _claimed(document)
        said = f"; its result.json alone says reward {claimed}, which nobody can check" if claimed is not None else ""
        return None, f"the verifier's files are gone{said}"
    if half := _half_written(files):
        return score, f"{half} is half-written: its reward may be of another moment"
    if score is None:
        return None, f"no reward: {_words(reading.refusals)}"
    return score, ""


def _half_written(files: Mapping[str, bytes]) -> str:
    """The first of the verifier's documents that is no whole JSON (fault e07), by the extractor's own reading; empty: none."""
    for name in (REWARD_JSON, METRICS, STAGES):
        if name in files:
            try:
                parse_json(files[name].decode())
            except (ValueError, RecursionError):
                return name
    return ""


def _words(refusals: Sequence[Refusal]) -> str:
    shown = [f"{r.source}{':' if r.source and r.key else ''}{r.key}: {r.why}".removeprefix(": ") for r in refusals]
    return printable("; ".join(shown), 4 * NAME_MAX) or "nothing says why"


def _finished(document: Mapping[str, Any] | None, name: str, job: Job) -> bool:
    return bool((document or {}).get("finished_at")) or name in job.ended


def _errors(document: Mapping[str, Any] | None, name: str, job: Job) -> Iterator[tuple[str, str]]:
    """(class, message): the trial's own word, else its job's, which has no messages."""
    found = list(_own_errors(document)) if document is not None else []
    yield from found or ((kind, "") for kind in job.exceptions.get(name, ()))


def _own_errors(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    steps = document.get("step_results")
    for holder in (document, *(steps if isinstance(steps, list) else ())):
        info = holder.get("exception_info") if isinstance(holder, dict) else None
        if isinstance(info, dict):
            kind, message = (printable(str(info.get(f"exception_{key}") or ""), NAME_MAX) for key in ("type", "message"))
            yield kind or "an exception without a name", message


def _claimed(document: Mapping[str, Any] | None) -> object:
    rewards = table(table(document).get("verifier_result")).get("rewards")
    value = table(rewards).get("reward")
    return value if isinstance(value, int | float) else None


def _details(
    tree: Tree, parts: Parts, document: Mapping[str, Any], receipt: Mapping[str, Any], errors: Sequence[tuple[str, str]], job: Job
) -> Details:
    tokens, cost = _spent(tree, parts, document)
    execution = table(document.get("agent_execution"))
    begun, ended = moment(execution.get("started_at")), moment(execution.get("finished_at"))
    started = moment(document.get("started_at"))
    return Details(
        model=model_of(document) or _configured_model(tree, parts, document),
        started_at_ms=started if started is not None else job.started_at_ms,
        agent_ms=ended - begun if begun is not None and ended is not None and ended >= begun else None,
        ended_by=DEADLINE if any(spent_budget(*error) for error in errors) else printable(errors[0][0], NAME_MAX) if errors else None,
        tokens=tokens,
        cost_nusd=cost,
        turns=_integer(receipt.get("turns")),
    )


def model_of(document: Mapping[str, Any]) -> str | None:
    """``provider/name``, or the name alone."""
    info = table(table(document.get("agent_info")).get("model_info"))
    name, provider = info.get("name"), info.get("provider")
    if not isinstance(name, str) or not name:
        return None
    return printable(f"{provider}/{name}" if isinstance(provider, str) and provider else name, NAME_MAX)


def _configured_model(tree: Tree, parts: Parts, document: Mapping[str, Any]) -> str | None:
    """What the trial was to ask, where no result says what it asked."""
    config = table(document.get("config")) or tree.table((*parts, CONFIG))[0]
    name = table(table(config).get("agent")).get("model_name")
    return printable(name, NAME_MAX) or None if isinstance(name, str) else None


def _spent(tree: Tree, parts: Parts, document: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Tokens, in and out together, and nano-dollars: of the result, else of the trajectory's end."""
    result = table(document.get("agent_result"))
    tokens = _sum(result.get("n_input_tokens"), result.get("n_output_tokens"))
    cost = nano_dollars(result.get("cost_usd"))
    if tokens is None and not result:
        trajectory, _ = tree.table((*parts, AGENT, TRAJECTORY))
        final = table(table(trajectory).get(FINAL))
        tokens = _sum(final.get("total_prompt_tokens"), final.get("total_completion_tokens"))
        cost = nano_dollars(final.get("total_cost_usd")) if cost is None else cost
    return tokens, cost


def _sum(given: object, got: object) -> int | None:
    first, second = _integer(given), _integer(got)
    return None if first is None or second is None else _integer(first + second)


def nano_dollars(value: object) -> int | None:
    """None: no finite amount that the ledger's integers hold."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_INTEGER / NUSD:
        return None
    return round(value * NUSD)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER else None


def _facts(tree: Tree, parts: Parts, receipt: Mapping[str, Any], errors: Sequence[tuple[str, str]]) -> Iterator[Fact]:
    """Where it lies, and what its own receipt says in plain words and numbers."""
    yield Fact("read from", str(tree.root.joinpath(*parts)), "import")
    for number, (kind, message) in enumerate(errors[:MAX_RECEIPT_KEYS], start=1):
        yield Fact(f"exception {number}", f"{kind}: {message}" if message else kind, RESULT)
    agent = [f"{entry.name}/" if entry.kind == FOLDER else entry.name for entry in tree.entries((*parts, AGENT))] if tree.has(
        parts, AGENT, FOLDER
    ) else []  # fmt: skip
    if agent:
        yield Fact("agent files", printable(", ".join(agent), 4 * NAME_MAX), "import")
    for key in sorted(receipt)[:MAX_RECEIPT_KEYS]:
        value = receipt[key]
        if isinstance(value, str | int | float):
            yield Fact(f"receipt {printable(key, NAME_MAX)}", printable(str(value), NAME_MAX), f"{AGENT}/{RECEIPT}")


def table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
