"""Which agent drives which kind of arm."""

from __future__ import annotations

from marathond.agents.codex.agent import CodexAgent
from marathond.agents.command import CommandAgent
from marathond.core.names import AgentKind
from marathond.ports.agent import Agent

AGENTS: dict[AgentKind, Agent] = {
    **{kind: CommandAgent() for kind in (AgentKind.ORACLE, AgentKind.NOP, AgentKind.COMMAND)},
    AgentKind.CODEX: CodexAgent(),
}
