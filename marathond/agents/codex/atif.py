"""A run as a trajectory in ATIF, the format that Harbor's viewer shows (version 1.7; its models take nothing that they do not know).

Owns how a thread's events become steps.  Pure: events in, plain values out.  Must not know files, the ledger or what the run was worth.

One step of source ``agent`` is one answer of the model: what it said and thought, its calls with what they gave back, its tokens.  Steps of
source ``user`` are what the driver sent, ``system`` what codex itself put there, a turn's bad end and a compaction.  In code mode a call is
a script: the commands that it ran stand in the step's ``extra.commands``, as do those of every other call.  A sub-agent's thread is a
trajectory of its own inside its parent's, and the call that began it points there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from marathond.agents.codex.rollout import (
    Called,
    Changed,
    Compacted,
    Context,
    Event,
    Ran,
    Returned,
    Rollout,
    Said,
    Spawned,
    Thought,
    TurnBegan,
    TurnEnded,
    Used,
    sha256,
)
from marathond.agents.codex.rollout_shapes import Tokens

VERSION = "ATIF-v1.7"
TEXT_CHARS_AT_MOST = 100_000
"""Of one message, argument or output; codex itself gives its model far less of an output."""
CHARS_AT_MOST = 32 << 20
"""Of all texts of a trajectory together: beyond, a text is cut to BRIEF_CHARS."""
BRIEF_CHARS = 200
STEPS_AT_MOST = 100_000
DEPTH_AT_MOST = 16
"""Of sub-agents below each other."""


@dataclass(frozen=True, slots=True)
class About:
    """What the trajectory says of the agent.  ``version``: codex's.  ``cost_usd`` None: not known."""

    name: str
    version: str
    model: str
    effort: str
    session_id: str
    cost_usd: float | None = None


@dataclass(slots=True)
class _Purse:
    """How much text may still be written."""

    left: int = field(default_factory=lambda: CHARS_AT_MOST)
    cut: int = 0

    def text(self, text: str) -> str:
        limit = min(TEXT_CHARS_AT_MOST, max(self.left, BRIEF_CHARS))
        # Lone surrogates cannot be written as UTF-8.
        text = text if text.isascii() else text.encode("utf-8", "replace").decode()
        if len(text) > limit:
            self.cut += 1
            text = f"{text[:limit]}\n[{len(text) - limit} characters more in the rollout]"
        self.left -= len(text)
        return text

    def value(self, value: Any, depth: int = 0) -> Any:
        """A call's arguments, which the model may fill with anything."""
        match value:
            case str():
                return self.text(value)
            case bool() | None | float():
                return value if value == value and value not in (float("inf"), float("-inf")) else str(value)
            case int():
                return value if abs(value) < 2**63 else str(value)
            case list() if depth < DEPTH_AT_MOST:
                return [self.value(each, depth + 1) for each in value]
            case Mapping() if depth < DEPTH_AT_MOST:
                return {self.text(str(key)): self.value(each, depth + 1) for key, each in value.items()}
            case _:
                return self.text(str(value))


@dataclass(slots=True)
class _Steps:
    """The steps of one thread, being made."""

    purse: _Purse
    model: str
    effort: str
    made: list[dict[str, Any]] = field(default_factory=list)
    open: dict[str, Any] | None = None
    calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Call id to its step."""
    last: dict[str, Any] | None = None
    """The agent's last step with a call: what runs now runs for it."""
    spawned: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """Sub-agent's thread to the call that began it, and its step."""
    turn_id: str = ""

    def take(self, event: Event) -> None:
        match event:
            case Said(at, "agent", text):
                self._add(self._agent(at), "message", text)
            case Said(at, by, text):
                self._plain(at, by, text)
            case Thought(at, text):
                if text:
                    self._add(self._agent(at), "reasoning_content", text)
            case Called():
                self._called(event)
            case Returned():
                self._returned(event)
            case Used(at, response_id, tokens):
                self._used(at, response_id, tokens)
            case Ran(_, item_id, command, status, exit_code, duration_ms):
                what = {"command": self.purse.text(command), "status": status, "exit_code": exit_code, "duration_ms": duration_ms}
                self._did(item_id, "commands", what)
            case Changed(_, item_id, status, files):
                paths = {self.purse.text(path): kind for path, kind in list(files.items())[:1000]}
                self._did(item_id, "file_changes", {"status": status, "files": paths})
            case Spawned(_, call_id, thread_id):
                if call_id in self.calls:
                    self.spawned[thread_id] = (call_id, self.calls[call_id])
            case TurnBegan(_, turn_id, _):
                self._close()
                self.turn_id = turn_id
            case Context(_, model, effort):
                self.model, self.effort = model, effort or self.effort
            case TurnEnded(at, _, status, why):
                self._close()
                if status != "completed":
                    self._plain(at, "system", f"The turn {status if status == 'failed' else 'was ' + status}: {why}")
            case Compacted(at, summary):
                self._plain(at, "system", f"The context was compacted. What the model sees from here on:\n\n{summary}")

    def end(self) -> list[dict[str, Any]]:
        self._close()
        return self.made

    def _add(self, step: dict[str, Any], key: str, text: str) -> None:
        text = self.purse.text(text)
        step[key] = f"{step[key]}\n\n{text}" if step.get(key) else text

    def _append(self, step: dict[str, Any]) -> dict[str, Any]:
        step["step_id"] = len(self.made) + 1
        if self.turn_id:
            step["extra"] = {"turn_id": self.turn_id[:100]}
        self.made.append(step)
        return step

    def _plain(self, at: str, by: str, text: str) -> None:
        self._close()
        self._append({"timestamp": at, "source": by, "message": self.purse.text(text)})

    def _agent(self, at: str) -> dict[str, Any]:
        """The answer that is being written."""
        if self.open is None:
            step = {"timestamp": at, "source": "agent", "message": "", "model_name": self.purse.text(self.model)[:200]}
            self.open = self._append(step)
            if self.effort:
                self.open["reasoning_effort"] = self.effort[:40]
        return self.open

    def _called(self, call: Called) -> None:
        step = self._agent(call.at)
        arguments = {self.purse.text(key): self.purse.value(value) for key, value in call.arguments.items()}
        made = {"tool_call_id": call.call_id, "function_name": self.purse.text(call.name), "arguments": arguments}
        step.setdefault("tool_calls", []).append(made)
        self.calls[call.call_id] = self.last = step

    def _returned(self, output: Returned) -> None:
        step = self.calls.get(output.call_id)
        if step is None:
            # Codex puts a goal's objective there as the output of a call that nobody made.
            self._plain(output.at, "system", f"{output.name or 'output of an unknown call'}: {output.text}")
            return
        result = {"source_call_id": output.call_id, "content": self.purse.text(output.text)}
        step.setdefault("observation", {"results": []})["results"].append(result)

    def _used(self, at: str, response_id: str, tokens: Tokens) -> None:
        step = self._agent(at)  # an answer without a word or a call is one, too
        step["llm_call_count"] = 1
        step["metrics"] = {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "cached_tokens": tokens.cached,
            "extra": {
                "cache_write_tokens": tokens.cache_write,
                "reasoning_tokens": tokens.reasoning,
                "response_id": self.purse.text(response_id)[:200],
            },
        }
        self._close()

    def _did(self, item_id: str, key: str, what: dict[str, Any]) -> None:
        step = self.calls.get(item_id) or self.last
        if step is not None:
            step.setdefault("extra", {}).setdefault(key, []).append(what)

    def _close(self) -> None:
        self.open = None


@dataclass(frozen=True, slots=True)
class Made:
    """``document``: for trajectory.json; None: there was nothing to tell.  ``cut``: texts that were shortened.  ``left_out``: steps."""

    document: dict[str, Any] | None
    steps: int = 0
    cut: int = 0
    left_out: int = 0
    embedded: frozenset[str] = frozenset()
    """Sub-agents' threads that are part of it."""


def trajectory(about: About, root: Rollout, others: Sequence[Rollout] = ()) -> Made:
    """``root``: the main thread's; ``others``: of all other threads."""
    below: dict[str, list[Rollout]] = {}
    for other in others:
        below.setdefault(other.parent_id, []).append(other)
    work = _Work(about, below, _Purse())
    document = work.document(root, 0)
    if document is None:
        return Made(None)
    return Made(document, len(document["steps"]), work.purse.cut, work.left_out, frozenset(work.told - {root.thread_id}))


@dataclass(slots=True)
class _Work:
    about: About
    below: Mapping[str, Sequence[Rollout]]
    purse: _Purse
    told: set[str] = field(default_factory=set)
    left_out: int = 0

    def document(self, rollout: Rollout, depth: int) -> dict[str, Any] | None:
        """One thread with those below it; None: it has no step, or was told before (a parent that is its own child)."""
        if rollout.thread_id in self.told or depth > DEPTH_AT_MOST:
            return None
        self.told.add(rollout.thread_id)
        about = self.about
        steps = _Steps(self.purse, about.model, about.effort)
        for event in rollout.events:
            steps.take(event)
        made = steps.end()
        self.left_out += max(0, len(made) - STEPS_AT_MOST)
        made = made[:STEPS_AT_MOST]
        if not made:
            self.told.discard(rollout.thread_id)
            return None
        children = [child for each in self.below.get(rollout.thread_id, ()) if (child := self.document(each, depth + 1)) is not None]
        for child in children:
            _point(steps.spawned.get(child["trajectory_id"]), child["trajectory_id"])
        agent: dict[str, Any] = {"name": about.name, "version": rollout.cli_version[:100] or about.version, "model_name": about.model}
        facts = {"effort": about.effort, "agent_path": rollout.agent_path[:200], "nickname": rollout.nickname[:200]}
        agent["extra"] = {key: value for key, value in facts.items() if value}
        document = {
            "schema_version": VERSION,
            "session_id": about.session_id,
            "trajectory_id": rollout.thread_id,
            "agent": agent,
            "steps": made,
            "final_metrics": _totals(rollout, len(made), about.cost_usd if depth == 0 else None),
        }
        if rollout.instructions:
            document["extra"] = {"base_instructions_sha256": sha256(rollout.instructions)}
        if children:
            document["subagent_trajectories"] = children
        return document


def _point(spawned: tuple[str, dict[str, Any]] | None, thread_id: str) -> None:
    """From the call that began it."""
    if spawned is None:
        return
    call_id, step = spawned
    results = step.setdefault("observation", {"results": []})["results"]
    result = next((each for each in results if each["source_call_id"] == call_id), None)
    if result is None:
        result = {"source_call_id": call_id}
        results.append(result)
    result.setdefault("subagent_trajectory_ref", []).append({"trajectory_id": thread_id})


def _totals(rollout: Rollout, steps: int, cost_usd: float | None) -> dict[str, Any]:
    """Tokens of this thread alone, as codex counted them; the cost is the whole trial's."""
    totals: dict[str, Any] = {
        "total_prompt_tokens": sum(tokens.input for tokens in rollout.used()),
        "total_completion_tokens": sum(tokens.output for tokens in rollout.used()),
        "total_cached_tokens": sum(tokens.cached for tokens in rollout.used()),
        "total_steps": steps,
    }
    return totals if cost_usd is None else {**totals, "total_cost_usd": cost_usd}


def from_items(about: About, thread_id: str, items: Iterable[Mapping[str, Any]]) -> Made:
    """The same from the items that the app-server told, where no rollout was left: without tokens, and no call but commands.

    :param items: as on the wire, in order, each once.
    """
    purse = _Purse()
    steps: list[dict[str, Any]] = []
    for item in items:
        step = _of_item(purse, item)
        if step is not None:
            steps.append({"step_id": len(steps) + 1, **step})
    if not steps:
        return Made(None)
    document = {
        "schema_version": VERSION,
        "session_id": about.session_id,
        "trajectory_id": thread_id,
        "agent": {"name": about.name, "version": about.version, "model_name": about.model},
        "steps": steps[:STEPS_AT_MOST],
        "final_metrics": {"total_steps": min(len(steps), STEPS_AT_MOST)},
        "notes": "No rollout was left: this is what the app-server told its client.",
    }
    if about.cost_usd is not None:
        document["final_metrics"]["total_cost_usd"] = about.cost_usd  # type: ignore[index]
    return Made(document, min(len(steps), STEPS_AT_MOST), purse.cut, max(0, len(steps) - STEPS_AT_MOST))


def _of_item(purse: _Purse, item: Mapping[str, Any]) -> dict[str, Any] | None:
    def text(key: str) -> str:
        value = item.get(key)
        return purse.text(value) if isinstance(value, str) else ""

    match item.get("type"):
        case "userMessage":
            content = item.get("content")
            parts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
            return {"source": "user", "message": purse.text("\n\n".join(part for part in parts if isinstance(part, str)))}
        case "agentMessage":
            return {"source": "agent", "message": text("text")}
        case "commandExecution":
            call_id = text("id")[:200] or "unknown"
            call = {"tool_call_id": call_id, "function_name": "commandExecution", "arguments": {"command": text("command")}}
            result = {"source_call_id": call_id, "content": text("aggregatedOutput")}
            code = item.get("exitCode")
            extra = {"exit_code": code} if isinstance(code, int) else {}
            return {"source": "agent", "message": "", "tool_calls": [call], "observation": {"results": [result]}, "extra": extra}
        case _:
            return None
