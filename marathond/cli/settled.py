"""What the options before a command settle, for whatever asks: which configuration, and so which ledger and socket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marathond.cli.locate import Located
    from marathond.service.settings import Settings


@dataclass(frozen=True, slots=True)
class Settled:
    """What the global options settle for every sub-command."""

    config: Path | None

    def located(self) -> Located:
        """Where the ledger and the socket are.

        :raises LedgerRefused: neither a configuration nor, at the default place, a ledger.
        """
        from marathond.cli.locate import locate, with_ledger

        return with_ledger(locate(self.config))

    def located_for_init(self) -> Located:
        """Where to make them: only where somebody said.

        :raises ConfigError: no configuration, and no path in the environment.
        """
        from marathond.cli.locate import locate

        found = locate(self.config)
        if not found.names("state_dir", "ledger"):
            self.settings()  # refuses, as for every command that needs a configuration
        return found

    def settings(self) -> Settings:
        from marathond.service.settings import load

        return load(self.config)
