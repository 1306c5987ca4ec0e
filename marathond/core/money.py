"""What tokens cost, what a trial may be expected to cost, and whether another block may begin (fault f13).

Owns prices, the forecast with its basis, and the rule of the campaign's cap.  Must not know where a token was counted.

Money is whole nano-dollars: one cached token of a cheap model costs about 25 of them, and sums of integers are exact.  What is not known
is None, never 0.

The forecast asks arm by arm, for arms cost differently and the cheap ones end first: a mean over whatever has ended would promise too
little.  Only sums over whole blocks leave this module, so that nothing is decided by an arm.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from marathond.core.names import AgentKind

NUSD = 1_000_000_000
"""Nano-dollars of a dollar."""

PER_TOKENS = 1_000_000
"""Prices are per a million tokens."""

UNPAID_ACCOUNTS = frozenset({"gate"})
"""Accounts whose requests a script of ours answers: no provider is asked."""

MODEL_KINDS = frozenset({AgentKind.CODEX})
"""Kinds of arms that ask a model."""

WARN_AT = 0.8
"""Share of the campaign's cap at which a person is told."""

P = TypeVar("P")
_DATED = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8})\Z")


@dataclass(frozen=True, slots=True)
class Price:
    """Nano-dollars per a million tokens of each kind."""

    input: int
    cached: int
    cache_write: int
    output: int


@dataclass(frozen=True, slots=True)
class Rules:
    """``[money]``: prices by model, caps, and what to expect of a trial while none has ended.  None: not set."""

    prices: Mapping[str, Price] = field(default_factory=dict)
    campaign_cap_nusd: int | None = None
    trial_cap_nusd: int | None = None
    expected_trial_nusd: int | None = None


def nusd(dollars: float) -> int:
    """The nearest whole number of nano-dollars."""
    return round(dollars * NUSD)


def dollars(amount_nusd: int) -> str:
    """``$4,112``, ``$12.34``, ``$0.0031``: two digits where they matter, whole dollars from a thousand on."""
    amount = amount_nusd / NUSD
    if abs(amount) >= 1000:
        return f"${amount:,.0f}"
    if amount and abs(amount) < 0.01:
        return f"${amount:.2g}" if abs(amount) >= 0.0001 else f"${amount:.6f}"
    return f"${amount:.2f}"


def price_of(prices: Mapping[str, P], model: str | None, asked: str | None) -> P | None:
    """By the model that answered; by the one that was asked only where the answer names none.  None: no price.

    A dated snapshot (``name-2026-01-31``) costs what its name costs, unless it has a price of its own.
    """
    name = model or asked or ""
    return prices.get(name) or prices.get(_DATED.sub("", name))


def cost_nusd(
    price: Price | None, *, input_tokens: int, cached_tokens: int = 0, cache_write_tokens: int = 0, output_tokens: int = 0
) -> int | None:
    """Cost of one request, rounded to whole nano-dollars; None without a price.

    ``cached_tokens`` and ``cache_write_tokens`` are parts of ``input_tokens``; reasoning is part of ``output_tokens``.
    """
    if price is None:
        return None
    plain = max(0, input_tokens - cached_tokens - cache_write_tokens)
    total = plain * price.input + cached_tokens * price.cached + cache_write_tokens * price.cache_write + output_tokens * price.output
    return (total + PER_TOKENS // 2) // PER_TOKENS


def request_cost_nusd(prices: Mapping[str, Price], account: str, model: str | None, asked: str | None, **tokens: int) -> int | None:
    """As :func:`cost_nusd`, by account and model; requests that no provider answered cost nothing."""
    return 0 if account in UNPAID_ACCOUNTS else cost_nusd(price_of(prices, model, asked), **tokens)


# ── what has been spent ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Spent:
    """Of a campaign.  ``valid_nusd`` and ``voids_nusd``: known costs of trials that stand, and of voided ones.

    ``priced``: requests behind them; ``cut``: requests cut in mid-stream, whose tokens nobody told; ``unpriced``: models without a price
    that answered, with their requests.
    """

    valid_nusd: int = 0
    voids_nusd: int = 0
    priced: int = 0
    cut: int = 0
    unpriced: Mapping[str, int] = field(default_factory=dict)

    @property
    def known_nusd(self) -> int:
        return self.valid_nusd + self.voids_nusd

    @property
    def cut_nusd(self) -> int | None:
        """What the cut requests cost if they were like the others; None: there is nothing to go by."""
        if not self.cut:
            return 0
        return None if not self.priced else self.cut * self.known_nusd // self.priced


# ── what is to be expected ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Sample:
    """An ended trial whose cost is known, or ``count`` of them and what they cost together."""

    task_id: int
    arm_id: int
    cost_nusd: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """``count`` cells of one task and arm that are still to be run; ``spent_nusd``: what those in work have cost already."""

    task_id: int
    arm_id: int
    count: int
    spent_nusd: int = 0


@dataclass(frozen=True, slots=True)
class Expected:
    """``nusd`` None: there is nothing to go by.  ``basis``: what the number rests on, in words."""

    nusd: int | None
    basis: str


class Forecast:
    """Means of finished trials, else the trial's cap, else the configured expectation.

    :param model_arms: arms that ask a model; any other arm is taken to cost nothing until one of its trials did.
    """

    def __init__(self, samples: Iterable[Sample], rules: Rules, model_arms: Iterable[int]) -> None:
        self.rules, self._model_arms = rules, frozenset(model_arms)
        self._sums: Counter[tuple[int | None, int]] = Counter()
        self._counts: Counter[tuple[int | None, int]] = Counter()
        for sample in samples:
            for key in ((sample.task_id, sample.arm_id), (None, sample.arm_id)):
                self._sums[key] += sample.cost_nusd
                self._counts[key] += sample.count

    def of(self, works: Iterable[Work]) -> Expected:
        """What the works will still cost, together."""
        total, unknown = 0, False
        grounds: Counter[str] = Counter()
        for work in works:
            each, ground = self._trial(work.task_id, work.arm_id)
            grounds[ground] += work.count
            if each is None:
                unknown = True
            else:
                total += max(0, each * work.count - work.spent_nusd)
        basis = self._words(grounds)
        return Expected(None if unknown else total, basis)

    def _trial(self, task_id: int, arm_id: int) -> tuple[int | None, str]:
        for key, ground in (((task_id, arm_id), "task"), ((None, arm_id), "campaign")):
            if self._counts[key]:
                return self._sums[key] // self._counts[key], ground
        if arm_id not in self._model_arms:
            return 0, "no model"
        if self.rules.trial_cap_nusd is not None:
            return self.rules.trial_cap_nusd, "cap"
        return self.rules.expected_trial_nusd, "expected" if self.rules.expected_trial_nusd is not None else "nothing"

    def _words(self, grounds: Counter[str]) -> str:
        """All grounds, the weakest last: a sum is as good as that one."""
        ended = sum(count for (task_id, _), count in self._counts.items() if task_id is None)
        mean = f"mean of {ended} ended trial{'' if ended == 1 else 's'}"
        words = {
            "task": f"{mean}, by task",
            "campaign": f"{mean}, of any task",
            "cap": "the trial's cap where none has ended",
            "expected": "money.expected_trial_usd where none has ended",
            "nothing": "unknown where none has ended: set money.trial_cap_usd or money.expected_trial_usd",
        }
        return "; ".join(text for ground, text in words.items() if grounds[ground]) or "nothing left to run"


# ── whether another block may begin ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Purse:
    """What the planner sees of money.  Only where there is a campaign cap.

    ``promised_nusd``: still to be expected of blocks that have begun.  ``blocks``: what each block that has not begun is expected to
    cost; None: unknown.  A block that is not in it has begun.  ``unknown``: why it cannot be told what was spent, empty: it can.
    """

    cap_nusd: int
    spent_nusd: int
    promised_nusd: int
    blocks: Mapping[int, int | None] = field(default_factory=dict)
    unknown: str = ""

    @property
    def tight(self) -> bool:
        """Whether some of the blocks may have to wait for money."""
        costs = list(self.blocks.values())
        return None in costs or self.spent_nusd + self.promised_nusd + sum(cost or 0 for cost in costs) > self.cap_nusd


class Till:
    """What is left of the cap while one walk over the cells goes on.

    A block that has begun is always finished, retries included: half a block compares nothing.  A new one begins only if what was
    spent, what is promised to blocks that have begun, and the whole of itself fit below the cap.
    """

    def __init__(self, purse: Purse | None) -> None:
        self._purse = purse
        self._promised = 0 if purse is None else purse.promised_nusd
        self._begun: set[int] = set()

    def is_new(self, block_id: int) -> bool:
        """Whether the block has not begun, neither before this walk nor in it."""
        return self._purse is not None and block_id in self._purse.blocks and block_id not in self._begun

    def lacks(self, block_id: int) -> str | None:
        """Why the block must not begin, or None: it may, or has begun."""
        purse = self._purse
        if purse is None or not self.is_new(block_id):
            return None
        cost = purse.blocks[block_id]
        if cost is None:
            return "MONEY (what a block will cost is unknown)"
        if purse.spent_nusd + self._promised + cost <= purse.cap_nusd:
            return None
        promised = f" + {dollars(self._promised)} promised" if self._promised else ""
        return f"MONEY {dollars(purse.spent_nusd)} spent{promised} of {dollars(purse.cap_nusd)}, next block {dollars(cost)}"

    def take(self, block_id: int) -> None:
        """A cell of the block is admitted."""
        if self._purse is not None and self.is_new(block_id):
            self._begun.add(block_id)
            self._promised += self._purse.blocks[block_id] or 0


# ── what a person must know of it ─────────────────────────────────────────────────────────────────────────────────────────────────────

CONCERNS = ("price_missing", "money_80", "money_cap")
"""Codes of the findings that :func:`concerns` gives; one that it gives no longer is over."""


@dataclass(frozen=True, slots=True)
class Concern:
    """A finding in the making."""

    code: str
    severity: str
    subject: str
    detail: str


def concerns(rules: Rules, unpriced: Mapping[str, int], purse: Purse | None, *, stopped: str, idle: bool) -> list[Concern]:
    """:param unpriced: model without a price → its requests.
    :param stopped: why the planner lets no new block begin; empty: it does.
    :param idle: nothing runs and nothing was admitted.  While something runs, what is promised to it may still come back.
    """
    found = []
    for model, count in unpriced.items():
        closed = "; nothing is admitted until there is one" if purse is not None else ""
        detail = f"{count} requests have no price{closed}: add it to [money.prices] and restart marathond"
        found.append(Concern("price_missing", "warning" if purse is None else "error", model or "(not named)", detail))
    if purse is None:
        return found
    if purse.spent_nusd >= WARN_AT * purse.cap_nusd:
        share = 100 * purse.spent_nusd // purse.cap_nusd
        found.append(Concern("money_80", "warning", "campaign", f"{share} % of the campaign's cap of {dollars(purse.cap_nusd)} are spent"))
    if stopped and idle and not purse.unknown:
        found.append(Concern("money_cap", "warning", "campaign", f"the cap lets no further block begin: {stopped.removeprefix('MONEY ')}"))
    return found


def whole_blocks(cap_nusd: int, spent_nusd: int, blocks_nusd: Iterable[int | None]) -> int:
    """How many of ``blocks_nusd``, in their order, fit below the cap; the first that does not, or whose cost is unknown, ends them."""
    count = 0
    for cost in blocks_nusd:
        if cost is None or spent_nusd + cost > cap_nusd:
            return count
        spent_nusd += cost
        count += 1
    return count
