"""A gateway without sockets: ``python -m tests.bench.fake_gateway FOLDER --every-s 20`` acknowledges listeners and keeps a journal.

For ``tests.bench.live_run --model`` alone, whose containers have no network to listen in.  Files, journal and records are the product's;
each agent's listener asks its model every so many seconds and is answered after two.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import time
from collections.abc import Callable
from pathlib import Path

from marathond.gateway.exchange import Exchange
from marathond.gateway.files import Listener, ack_path, parse_listener, read_json, write_json
from marathond.gateway.journal import Journal
from marathond.gateway.usage import Tokens
from marathond.ports.clock import SystemClock

POLL_S, ALIVE_S, ANSWER_S = 0.1, 2.0, 2.0


class Gateway:
    def __init__(self, folder: Path, every_s: float) -> None:
        self.folder, self.every_s, self.clock = folder, every_s, SystemClock()
        self.journal = Journal(folder / "journal")
        self._seen: dict[str, int] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._dice = random.Random(1)

    def at(self, when_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when_s, next(self._serial), what))

    def run(self) -> None:
        """Until it is killed."""
        self.alive()
        while True:
            self.listeners()
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            time.sleep(POLL_S)

    def alive(self) -> None:
        told = {"boot_id": self.clock.boot_id, "mono_ms": self.clock.mono_ms(), "journal": "j", "config_error": "", "journal_error": ""}
        load = {"key_errors": {}, "not_opened": 0, "streams": 0, "waiting": {}, "tokens_per_min": {}}
        write_json(self.folder / "alive.json", {**told, **load}, durable=False)
        self.at(time.monotonic() + ALIVE_S, self.alive)

    def listeners(self) -> None:
        for path in (self.folder / "listeners").glob("*.json"):
            told = read_json(path)
            if told is None or self._seen.get(path.stem) == told.get("version"):
                continue
            listener = parse_listener(path.stem, told)
            if path.stem not in self._seen and listener.account == "agent":
                self.at(time.monotonic() + self._dice.uniform(0, self.every_s), lambda asker=listener: self.ask(asker))  # type: ignore[misc]
            self._seen[path.stem] = listener.version
            known = {name: getattr(listener, name) for name in ("name", "version", "container_id", "started_at", "port")}
            said = {"state": "listening", "code": "", "detail": "", "life": "l", "mono_ms": self.clock.mono_ms()}
            write_json(ack_path(self.folder, path.stem), {**known, **said}, durable=False)

    def ask(self, listener: Listener) -> None:
        asked = Exchange(listener, "POST", "/v1/responses", self.clock.mono_ms())
        asked.begins(self.journal, self.clock)
        asked.ready_ms = asked.sent_ms = asked.arrived_ms
        asked.status = asked.upstream_status = 200
        asked.end, asked.usage, asked.tokens, asked.model, asked.model_asked = "complete", "known", Tokens(9000, 8000, 0, 90, 40), "m", "m"
        self.at(time.monotonic() + ANSWER_S, lambda: asked.ends(self.journal, self.clock))
        self.at(time.monotonic() + self.every_s, lambda: self.ask(listener))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fake_gateway", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every-s", type=float, default=20.0, help="between two requests of one agent (default: 20)")
    options = parser.parse_args()
    Gateway(options.folder, options.every_s).run()


if __name__ == "__main__":
    main()
