"""A step as output items, in the tool surface that the request offers.

Owns the two surfaces of codex 0.171: direct (``function_call`` of exec_command, shell_command or shell; ``custom_tool_call`` apply_patch)
and code mode (one ``custom_tool_call`` exec whose JavaScript calls ``tools.…``).  Offered tools decide; the model's slug decides where
nothing is offered.  Must not know faults, SSE or state.
"""

from __future__ import annotations

import json
from typing import Any

from marathond.practice.request import MARK, Ask, Running, Surface
from marathond.practice.script import Practice, Step

Item = dict[str, Any]
LOOK_MS = 250
"""How long the call of a command waits that the script does not wait for."""


class CannotPlay(Exception):
    """A step that the request's tools do not allow; ``str()`` says why."""


def surface_of(practice: Practice, ask: Ask) -> Surface:
    if ask.tools.get("exec") == "custom":
        return "code"
    if ask.tools:
        return "direct"
    return "code" if practice.runs_in_code_mode(ask.model) else "direct"


def items_of(step: Step, position: int, surface: Surface, ask: Ask) -> list[Item]:
    """The items of a step, whatever its shape; their ids tell ``position`` when they come back.

    :raises CannotPlay: JavaScript in the direct surface.
    """
    found = []
    if step.say:
        found.append(message(step.say, position))
    if step.acts:
        spaced = step.call is not None and step.call.namespace is not None  # offered beside code mode's exec, not inside
        found.append(_in_code(step, position) if surface == "code" and not spaced else _direct(step, position, ask))
    return found


def message(text: str, position: int) -> Item:
    return {
        "id": f"msg_{MARK}_{position}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def compaction(position: int) -> Item:
    """What replaces the history where the client asked for an item (remote compaction)."""
    return {"id": f"cmp_{MARK}_{position}", "type": "compaction", "encrypted_content": f"{MARK}-{position}"}


def poll(position: int, number: int, on: Running, yield_ms: int) -> Item:
    """Ask once more for what a running command says."""
    if on.cell is not None:
        return _function("wait", {"cell_id": on.cell, "yield_time_ms": yield_ms}, position, f"_w{number}")
    assert on.session is not None
    return _function("write_stdin", {"session_id": int(on.session), "chars": "", "yield_time_ms": yield_ms}, position, f"_w{number}")


def _direct(step: Step, position: int, ask: Ask) -> Item:
    if step.javascript is not None:
        raise CannotPlay("javascript needs code mode, and this request does not offer it")
    if step.run is not None:
        return _command(step.run, position, ask, step.yield_ms if step.wait else LOOK_MS)
    if step.patch is not None:
        if ask.tools and ask.tools.get("apply_patch") != "custom":  # codex takes the command of this name for the tool
            return _command(f"apply_patch <<'PRACTICE_PATCH'\n{step.patch.rstrip()}\nPRACTICE_PATCH\n", position, ask, step.yield_ms)
        return _custom("apply_patch", step.patch, position)
    made = _function(*_named(step), position)
    if step.call is not None and step.call.namespace is not None:
        made["namespace"] = step.call.namespace
    return made


def _named(step: Step) -> tuple[str, dict[str, Any]]:
    """The actions that are plain calls of a function tool."""
    if step.goal is not None:
        return "update_goal", {"status": step.goal}
    if step.create_goal is not None:
        return "create_goal", step.create_goal.model_dump(exclude_none=True)
    assert step.call is not None
    return step.call.name, step.call.arguments


def _command(command: str, position: int, ask: Ask, yield_ms: int) -> Item:
    if "exec_command" in ask.tools or not ask.tools:
        return _function("exec_command", {"cmd": command, "yield_time_ms": yield_ms}, position)
    if "shell_command" in ask.tools:
        return _function("shell_command", {"command": command}, position)
    if "shell" in ask.tools:
        return _function("shell", {"command": ["sh", "-c", command]}, position)
    raise CannotPlay(f"no tool that runs a command is offered, only {', '.join(sorted(ask.tools))[:300]}")


def _in_code(step: Step, position: int) -> Item:
    if step.javascript is not None:
        return _custom("exec", step.javascript, position)
    if step.run is not None:
        poll_on = "while (r.session_id !== undefined) { text(r.output); r = await tools.write_stdin(" + (
            f'{{session_id: r.session_id, chars: "", yield_time_ms: {step.yield_ms}}}); }}\n'
        )
        source = (
            f"// @exec: {_js({'yield_time_ms': step.yield_ms + LOOK_MS})}\n"
            f"let r = await tools.exec_command({_js({'cmd': step.run, 'yield_time_ms': step.yield_ms if step.wait else LOOK_MS})});\n"
            + (poll_on if step.wait else "")
            + "text(r.output);\ntext(`exit code ${r.exit_code}`);\n"
        )
    elif step.patch is not None:
        source = f"text(await tools.apply_patch({_js(step.patch)}));\n"
    else:
        name, arguments = _named(step)
        source = f"text(await tools[{_js(name)}]({_js(arguments)}));\n"
    return _custom("exec", source, position)


def _js(value: Any) -> str:
    """JSON is JavaScript."""
    return json.dumps(value)


def _function(name: str, arguments: dict[str, Any], position: int, suffix: str = "") -> Item:
    return {
        "id": f"fc_{MARK}_{position}{suffix}",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{MARK}_{position}{suffix}",
        "name": name,
        "arguments": json.dumps(arguments),
    }


def _custom(name: str, text: str, position: int) -> Item:
    return {
        "id": f"ctc_{MARK}_{position}",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": f"call_{MARK}_{position}",
        "name": name,
        "input": text,
    }
