"""What a campaign must have come to, whatever happened on the way."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel

from marathond.engine.docker import DockerEngine
from marathond.ports.engine import LABEL_LEDGER
from tests.support.rig import Rig


async def wait_for(what: Callable[[], object], *, patience_s: float = 300.0, pause_s: float = 0.02) -> None:
    """For what only a file or a counter tells; :meth:`Rig.until` waits on the ledger.  Pause 0: some moments are short."""
    with anyio.fail_after(patience_s):
        while True:
            if what():
                return
            await (anyio.sleep(pause_s) if pause_s else anyio.lowlevel.checkpoint())


async def assert_nothing_left(rig: Rig, engine: DockerEngine) -> None:
    """When the last teardown and, where the engine was not ready for it, the sweeper have done their work."""
    for loose in ("claim WHERE released_at_ms", "network_lease WHERE released_at_ms", "container WHERE gone_at_ms"):
        await rig.until(f"SELECT count(*) = 0 FROM {loose} IS NULL")
    assert await engine.list_containers({LABEL_LEDGER: rig.ledger_id}) == []
    assert [n.name for n in await engine.list_networks() if n.labels.get(LABEL_LEDGER) == rig.ledger_id] == []


def runs_of(rig: Rig) -> list[int]:
    """How often the agent of each scored trial ran, by what it wrote itself."""
    folders = rig.sql("SELECT folder FROM artifact_export JOIN trial USING (trial_id) WHERE state = 'scored' ORDER BY trial_id")
    return [len((rig.root / "out" / folder / "artifacts" / "runs").read_text().splitlines()) for (folder,) in folders]
