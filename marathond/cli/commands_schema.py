"""The sub-command that tells what --json prints: schema.

Owns its arguments and help, and the list of schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from marathond.cli.app import Json, app, offered
from marathond.cli.output import Column, print_json, say, screen, table
from marathond.service.exits import CallFailed, Exit


@dataclass(frozen=True, slots=True)
class Listed:
    """A schema that there is.

    :param name: a command, config (the configuration file), or error (what a refused command leaves on stderr).
    :param about: what it describes.
    """

    name: str
    about: str


@app.command(name="schema")
def schema_command(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]...",
            help="A command, such as status or ledger check; config; or error.",
            autocompletion=offered("schemas"),
        ),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Which schemas there are; also without COMMAND.")] = False,
    as_json: Json = False,
) -> None:
    """The JSON Schema (draft 2020-12) of what a command prints with --json, or of the configuration file.

    Fields may be added; within a major version none is renamed or removed.  With --json, a refused command's last line on stderr is an
    object of the schema error.
    """
    from marathond.cli import schema_forms as forms
    from marathond.service.knobs import did_you_mean

    name = " ".join(command or ())
    if list_all or not name:
        rows = [Listed(each, forms.about(each)) for each in forms.names()]
        if as_json:
            print_json(rows)
            return
        for line in table((Column("schema"), Column("of what", least=20, wrap=True)), [(row.name, row.about) for row in rows], screen()):
            say(line)
        return
    if name in forms.EXEMPT:
        raise CallFailed(f"schema: {name} has none: {forms.EXEMPT[name]}", Exit.USAGE)
    if name not in forms.names():
        known = did_you_mean(name, forms.names(), otherwise="; which there are: marathonctl schema --list")
        raise CallFailed(f"schema: there is none of {name!r}{known}", Exit.USAGE)
    print_json(forms.schema(name))
