"""The daemon as a process, in which arms of kind ``command`` have a way to the model (tests/support/model_agent.py)."""

from __future__ import annotations

from marathond.cli.daemon import main
from tests.support.model_agent import commands_that_ask

if __name__ == "__main__":
    with commands_that_ask():
        main()
