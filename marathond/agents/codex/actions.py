"""What a driver may do next, as values.  Pure; decided in :mod:`~marathond.agents.codex.drive`, carried out in ``conduct``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marathond.agents.codex.state import Pending
from marathond.core.names import EndedBy


@dataclass(frozen=True, slots=True)
class StartThread:
    """Start a thread, compare what is in effect, write it down."""


@dataclass(frozen=True, slots=True)
class First:
    """The first message; in a goal's arm together with the goal."""


@dataclass(frozen=True, slots=True)
class CarryOut:
    """Do what was intended and not seen to be done."""

    pending: Pending


@dataclass(frozen=True, slots=True)
class Listen:
    """Wait for news.  ``resting``: nothing is in flight although something should be: look after a while."""

    resting: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Take it up again after a pause.  ``cause``: ``infra``, ``stalled``; of an operator ``model``, ``gate``; ``n`` counts that cause's."""

    cause: Literal["infra", "stalled", "model", "gate"]
    n: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Look:
    """Ask LoopX for gates that wait for a person."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask LoopX's scheduler after a pause."""

    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Wake:
    """Another wake after a pause.  ``cause``: ``hint``, or ``gate`` after one was cleared: then with the whole task once more."""

    cause: Literal["hint", "gate"]
    pause_s: float


@dataclass(frozen=True, slots=True)
class End:
    """The agent ended.  ``quiet``: its goal would go on, so it is stopped first."""

    by: EndedBy
    why: str
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    """The infrastructure failed the agent; a void code and its evidence."""

    code: str
    detail: str


Action = StartThread | First | CarryOut | Listen | Again | Look | Ask | Wake | End | Fail
