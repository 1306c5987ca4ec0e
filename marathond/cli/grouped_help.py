"""``marathonctl --help``: commands by what a person is about to do.

Owns which command belongs where, and the order in which they stand.  It is imported before any command is and knows them by name alone.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Watch",
        (
            *("status", "top", "page", "tail", "history", "show", "logs", "exec", "findings", "explain", "audit"),
            *("capacity", "pool", "wait", "report", "diff", "disclosures", "sql"),
        ),
    ),
    ("Decide", ("void", "unvoid", "review", "retry", "unpark", "ack", "pause", "resume", "drain", "stop", "set", "submit", "regrade")),
    ("Configure", ("config", "init", "stage", "prebuild", "plan", "preflight", "verify-envs", "canary", "arms")),
    ("Look after", ("doctor", "notify", "sizes", "archive", "prune", "clean", "ledger", "import", "schema")),
)


class GroupedHelp(TyperGroup):
    """Sections in place of one list; nothing else differs from typer's own."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the groups, which tab completion shows, too; a command that none has comes last."""
        known = [name for _, names in GROUPS for name in names if name in self.commands]
        return [*known, *(name for name in super().list_commands(ctx) if name not in known)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name)) and not command.hidden}
        grouped = {name for _, names in GROUPS for name in names}
        width = max(map(len, shown), default=0)
        for title, names in (*GROUPS, ("Other", tuple(name for name in shown if name not in grouped))):
            rows = [(name.ljust(width), shown[name].get_short_help_str(formatter.width - width - 6)) for name in names if name in shown]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
