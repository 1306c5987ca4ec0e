"""A command that may ask a model: what an arm of kind ``command`` becomes in tests of the way to the model, with no client of its own.

The command finds ``$MODEL_URL`` (ending in /v1) and ``$MODEL_KEY`` in its environment, and :data:`ASK` in ``$MODEL_ASK``: bash source that
defines ``ask TEXT``, which sends one request as codex does and leaves status, headers and body in files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from marathond.agents.command import CommandAgent
from marathond.agents.registry import AGENTS
from marathond.core.names import AgentKind
from marathond.ports.agent import Environment

ASK = r"""
# ask TEXT [JSON MEMBERS]: one request with the tools in $TOOLS; the status in $status (000: no answer), all of the answer in /tmp/answer.
ask() {
    local body address host path text=$1 more=${2:+,$2}
    local tools=${TOOLS:-'[{"type":"function","name":"exec_command"}]'}
    body="{\"model\":\"${MODEL:-gpt-5.5}\",\"stream\":true,\"tools\":$tools$more"
    body="$body,\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"$text\"}]}]}"
    address=${MODEL_URL#http://}; host=${address%%/*}; path=/${address#*/}
    status=000
    exec 9<>"/dev/tcp/${host%:*}/${host#*:}" || return 1
    printf '%s\r\n' "POST $path/responses HTTP/1.1" "Host: $host" "Authorization: Bearer $MODEL_KEY" "Content-Type: application/json" \
        "Content-Length: ${#body}" "Connection: close" \
        "x-codex-turn-metadata: {\"thread_id\":\"$THREAD\",\"turn_id\":\"1\",\"request_kind\":\"turn\"}" "" >&9
    printf %s "$body" >&9
    cat <&9 >/tmp/answer
    exec 9>&-
    read -r _ status _ </tmp/answer
    status=${status:-000}
}
THREAD=$(cat /proc/sys/kernel/random/uuid)
"""


class AskingCommand(CommandAgent):
    """The command agent, with a way to the model."""

    needs_model = True

    async def create(self, env: Environment) -> str | None:
        variables: Mapping[str, str] = {"MODEL_ASK": ASK}
        if env.model is not None:
            variables = {**variables, "MODEL_URL": env.model.base_url, "MODEL_KEY": env.model.key}
        return await super().create(replace(env, arm=replace(env.arm, env={**variables, **env.arm.env})))


@contextlib.contextmanager
def commands_that_ask() -> Iterator[None]:
    """Within it every arm of kind ``command`` gets a way to the model, in this process."""
    before = AGENTS[AgentKind.COMMAND]
    AGENTS[AgentKind.COMMAND] = AskingCommand()
    try:
        yield
    finally:
        AGENTS[AgentKind.COMMAND] = before


def asking(script: str) -> dict[str, object]:
    """An arm whose bash ``script`` may call ``ask``."""
    return {"kind": "command", "argv": ["bash", "-c", f'eval "$MODEL_ASK"\n{script}']}
