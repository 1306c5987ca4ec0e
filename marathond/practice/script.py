"""Scripts as data: what the practice provider answers, step by step, and what goes wrong before or in a step.

Owns the TOML form and its validation.  A :class:`Script` is one conversation's part: which requests it fits (``task``, ``arm``, ``text``,
``pattern``, ``model``), its steps, and what comes after them (``then``).  One step is one answer: at most one action, with or without text.
Where several scripts of a file fit, the first one is played.  Must not know HTTP, nor how a step looks in a tool surface.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from marathond.core.errors import ConfigError
from marathond.core.tomlindex import index_lines, line_of

FILE_BYTES_AT_MOST = 4 << 20
CODE_MODELS = ("gpt-6-*", "gpt-6.*", "gpt-5.6*", "gpt-daybreak-*", "codex-auto-review")
"""Slugs that codex 0.171's own catalogue (``codex debug models``) runs in code mode; used for requests that offer no tool."""

Name = Annotated[str, Field(min_length=1, max_length=200)]
Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
Times = Annotated[int, Field(ge=1, le=100_000)]
Tokens = Annotated[int, Field(ge=0, le=10**12)]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Usage(_Data):
    """Tokens of one response; ``cached`` is a part of ``input``, ``reasoning`` a part of ``output``."""

    input: Tokens = 0
    cached: Tokens = 0
    output: Tokens = 0
    reasoning: Tokens = 0

    @model_validator(mode="after")
    def _parts_fit(self) -> Usage:
        if self.cached > self.input or self.reasoning > self.output:
            raise ValueError("cached must be at most input, and reasoning at most output")
        return self

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
        )


class StatusFault(_Data):
    """An HTTP error, for ``times`` requests or for ``for_s`` seconds from the first one that meets it (default: once)."""

    kind: Literal["status"]
    status: Annotated[int, Field(ge=400, le=599)]
    times: Times | None = None
    for_s: Seconds | None = None
    retry_after_s: Annotated[int, Field(ge=0, le=86400)] | None = None
    """Sent as written, in the client's seconds; left out: no ``Retry-After``."""
    code: str | None = None
    message: str = "the practice provider was told to fail"

    @model_validator(mode="after")
    def _one_measure(self) -> StatusFault:
        if self.times is not None and self.for_s is not None:
            raise ValueError("give times or for_s, not both")
        return self


class FailedFault(_Data):
    """A stream that ends with ``response.failed`` and ``code`` (``rate_limit_exceeded``, ``insufficient_quota`` …)."""

    kind: Literal["failed"]
    code: Name
    message: str = "the practice provider was told to fail"
    times: Times = 1


class CutFault(_Data):
    """A stream that breaks off.

    ``after``: ``event``, in the middle of an event's bytes; ``item``, after the last item was done, before ``response.completed``.
    ``how``: ``close``, the connection ends inside the body; ``eof``, the body ends properly, too early.
    """

    kind: Literal["cut"]
    after: Literal["event", "item"] = "event"
    how: Literal["close", "eof"] = "close"
    times: Times = 1


class StallFault(_Data):
    """No byte for ``for_s``, before the headers or after the first event; then the step goes on."""

    kind: Literal["stall"]
    for_s: Seconds
    at: Literal["headers", "stream"] = "stream"
    times: Times = 1


class OutageFault(_Data):
    """From the first request that reaches the step on, for ``for_s``, every request is turned away.

    ``scope``: ``trial`` or ``all`` trials of this provider.  ``how``: ``status`` (HTTP ``status``), or ``close`` (no byte at all).
    """

    kind: Literal["outage"]
    for_s: Seconds
    scope: Literal["trial", "all"] = "all"
    how: Literal["status", "close"] = "status"
    status: Annotated[int, Field(ge=500, le=599)] = 503


Fault = Annotated[StatusFault | FailedFault | CutFault | StallFault | OutageFault, Field(discriminator="kind")]
Shape = Literal["whole", "empty", "deltas", "completed_only"]


class Call(_Data):
    """A call of any function tool by name; ``namespace``: of one that the client offers in a namespace of its own (``collaboration``)."""

    name: Name
    namespace: Name | None = None
    arguments: dict[str, Any] = Field(default_factory=dict)


class NewGoal(_Data):
    objective: Name
    token_budget: Annotated[int, Field(gt=0)] | None = None


class Step(_Data):
    """One answer.  ``run``: a shell command, waited for by polling unless ``wait`` is false.  ``patch``: the text of an apply_patch.
    ``javascript``: verbatim, in code mode only.  ``goal``: the status for update_goal.  ``shape`` other than ``whole``: the silent
    zeros (facts of codex 0.171): ``empty``, no item at all; ``deltas``, text that no item completes; ``completed_only``, a message that
    only ``response.completed`` holds.  ``model``: answered as another model's id, and told in the
    header ``openai-model`` as well unless ``model_header`` is false: codex 0.171 notices a swap by that header alone.
    """

    say: str | None = None
    run: Annotated[str, Field(min_length=1)] | None = None
    patch: Annotated[str, Field(pattern=r"^\*\*\* Begin Patch\n")] | None = None
    javascript: Annotated[str, Field(min_length=1)] | None = None
    call: Call | None = None
    goal: Literal["complete", "blocked", "paused"] | None = None
    create_goal: NewGoal | None = None
    wait: bool = True
    yield_ms: Annotated[int, Field(ge=250, le=30_000)] = 25_000
    """How long one call waits for the command of ``run`` before it is polled; codex takes 250 ms to 30 s."""
    shape: Shape = "whole"
    model: Name | None = None
    model_header: bool = True
    usage: Usage | None = None
    fault: tuple[Fault, ...] = Field(default=(), max_length=100)

    @property
    def acts(self) -> bool:
        return any(value is not None for value in (self.run, self.patch, self.javascript, self.call, self.goal, self.create_goal))

    @property
    def traceless(self) -> bool:
        """A client that gets it whole keeps nothing of it in its next request."""
        return self.shape != "whole"

    @model_validator(mode="after")
    def _is_one_answer(self) -> Step:
        actions = [k for k in ("run", "patch", "javascript", "call", "goal", "create_goal") if getattr(self, k) is not None]
        if len(actions) > 1:
            raise ValueError(f"one step is one answer: {' and '.join(actions)} need steps of their own")
        if self.shape == "whole" and not actions and not self.say:
            raise ValueError('a step needs say, an action, or shape = "empty"')
        if self.shape == "empty" and (actions or self.say):
            raise ValueError('a step of shape "empty" says and does nothing')
        if self.shape in ("deltas", "completed_only") and (actions or not self.say):
            raise ValueError(f'a step of shape "{self.shape}" needs say and no action')
        return self


def filled(step: Step, words: Mapping[str, str]) -> Step:
    """``step`` with each ``{{name}}`` of ``words`` replaced; other double braces are left as they stand."""

    def fill(text: str | None) -> str | None:
        return text and re.sub(r"\{\{(\w+)\}\}", lambda found: words.get(found[1], found[0]), text)

    return step.model_copy(update={"run": fill(step.run), "say": fill(step.say)}) if words else step


class Script(_Data):
    """The part of every conversation that fits; a criterion left out fits all.

    ``task`` and ``arm`` are compared with what the key or path says.  Where these say no task, it is looked for in the user's messages
    (``text``, or else the task's name as a word of its own); where they say no arm, a conversation with a goal is ``goal``, any other
    ``plain``.  ``pattern``: a regular expression that one of the user's messages must match as a whole; what its named groups
    caught takes the place of ``{{name}}`` in ``run`` and ``say``.  It comes from the client: catch only what may stand in a command.
    ``latest``: the same, looked for anywhere in the user's last message of each request, else in the objective of its goal; where it is
    not found, its names stay as they stand.
    ``then``: ``done`` (completes the goal if there is one and says so, turn after turn), ``blocked`` (blocks it and says so),
    ``repeat`` (from the first step again), ``silent`` (empty answers for ever).  ``polls``: how often a running command is
    polled before the script goes on without it.
    """

    task: Name | None = None
    arm: Name | None = None
    text: Name | None = None
    pattern: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    latest: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    model: Name | None = None
    """Shell pattern of the request's model slug, such as ``gpt-6*``."""
    step: tuple[Step, ...] = Field(default=(), max_length=10_000)
    then: Literal["done", "blocked", "repeat", "silent"] = "done"
    usage: Usage | None = None
    """Of every step without its own; left out: estimated from the sizes of request and answer, four bytes a token."""
    reject_fields: tuple[Name, ...] = ()
    """HTTP 400 while the request holds any of these, as ``text.verbosity`` or ``input.*.namespace``."""
    polls: Annotated[int, Field(ge=0, le=10_000)] = 120

    @model_validator(mode="after")
    def _patterns_compile(self) -> Script:
        for name in ("pattern", "latest"):
            try:
                re.compile(getattr(self, name) or "")
            except re.error as err:
                raise ValueError(f"{name} is no regular expression: {err}") from err
        return self

    @model_validator(mode="after")
    def _can_repeat(self) -> Script:
        if self.then == "repeat" and not self.step:
            raise ValueError('then = "repeat" needs a step to repeat')
        return self


class Key(_Data):
    """What a key stands for."""

    key: Annotated[str, Field(min_length=8, max_length=500)]
    trial: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")]
    task: Name | None = None
    arm: Name | None = None


class Practice(_Data):
    """A whole file.  ``speed``: how many seconds of the provider's clock pass in one of the host's."""

    script: tuple[Script, ...] = Field(min_length=1, max_length=10_000)
    speed: Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)] = 1.0
    code_models: tuple[Name, ...] = CODE_MODELS
    key: tuple[Key, ...] = ()
    known_keys_only: bool = False
    """HTTP 401 for a key that no ``[[key]]`` names."""

    def runs_in_code_mode(self, model: str) -> bool:
        return any(fnmatch.fnmatchcase(model, pattern) for pattern in self.code_models)


def load(path: Path) -> Practice:
    """Read a script file.

    :raises ConfigError: it cannot be read, is no TOML, or something in it is wrong; the first thing wrong, with its line.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_AT_MOST + 1)
        if len(raw) > FILE_BYTES_AT_MOST:
            raise ConfigError(str(path), f"more than {FILE_BYTES_AT_MOST} bytes", "a practice script is smaller")
        return parse(raw.decode(), str(path))
    except OSError as err:
        raise ConfigError(str(path), "cannot be read", err.strerror or str(err)) from err
    except UnicodeDecodeError as err:
        raise ConfigError(str(path), f"byte {err.start} is not UTF-8", "a TOML file is UTF-8") from err


def parse(text: str, name: str = "script") -> Practice:
    """The same from text; ``name`` stands for the file in errors.

    :raises ConfigError: as :func:`load`.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as err:
        raise ConfigError(name, "no valid TOML", str(err)) from err
    except RecursionError as err:
        raise ConfigError(name, "no valid TOML", "nested too deeply") from err
    try:
        return Practice.model_validate(data)
    except ValidationError as err:
        detail = err.errors(include_url=False, include_input=False)[0]
        path = _written(detail["loc"], data)
        line = line_of(index_lines(text), path)
        where = f"{name}:{line}" if line is not None else name
        words = "no such key" if detail["type"] == "extra_forbidden" else detail["msg"].removeprefix("Value error, ")
        raise ConfigError(where, ".".join(map(str, path)) or "the file", words) from err


def _written(location: Sequence[str | int], data: Any) -> tuple[str | int, ...]:
    """pydantic's place without what it adds (the tag of a union), so that it can be found in the file."""
    path: list[str | int] = []
    for part in location:
        if path[-2:-1] == ["fault"] and isinstance(data, dict) and data.get("kind") == part:
            data = {key: value for key, value in data.items() if key != "kind"}  # the tag stands between the index and the key, once
            continue
        if isinstance(data, dict):
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        path.append(part)
    return tuple(path)
