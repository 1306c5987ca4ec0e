"""The preflight itself: which checks there are, in the order of the table, and how long each may take.

Owns the list.  A check stands here once; its row's code is stable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from marathond.core.preflight.rows import Row, not_needed, said_once, warn
from marathond.ports.clock import Clock
from marathond.service.preflight import boxes, engine, places, rest
from marathond.service.preflight.run import Check, carry_out, settle
from marathond.service.preflight.scene import Scene
from marathond.service.settings import Settings

LOOK_S = 60.0
"""Of a check that looks at files, or asks somebody once."""
BOX_S = 120.0
"""Of one that needs a container; less than a sweeper leaves it alone."""
SURVEY_S = 600.0
"""Of all images together."""


async def preflight(settings: Settings, environ: Mapping[str, str], *, send: bool = False, clock: Clock | None = None) -> list[Row]:
    """Every row, in order.  Nothing of it is left on the engine or on disk, whatever interrupts it.

    :param environ: the caller's own.
    :param send: a message goes over each channel of ``[notify]``.
    :raises ConfigError: as a submission would.
    """
    async with Scene(settings, environ, clock=clock) as scene, scene.yard:
        try:
            rows = await carry_out(list(checks(scene, send=send)), scene.facts)
        finally:
            settle()
    return [
        *said_once(rows),
        *(warn("left_behind", words, "the next preflight removes it; or docker rm -f, docker network rm") for words in scene.yard.left),
    ]


def checks(scene: Scene, *, send: bool) -> Iterator[Check]:
    yield Check(("engine",), partial(engine.engine, scene), LOOK_S)
    yield Check(("engine_proxy",), partial(engine.engine_proxy, scene), LOOK_S)
    yield Check(("bind_mounts",), partial(boxes.bind_mounts, scene), BOX_S)
    yield Check(("egress_none",), partial(boxes.egress_none, scene), BOX_S)
    yield Check(("egress_public",), partial(boxes.egress_public, scene), BOX_S)
    yield Check(("tasks",), partial(rest.tasks, scene), LOOK_S)
    yield Check(("base_images",), partial(engine.base_images, scene), LOOK_S)
    yield Check(("images_built",), partial(engine.images_built, scene), LOOK_S)
    yield Check(("image_libc",), partial(engine.image_libc, scene), SURVEY_S)
    yield Check(("gpus",), partial(engine.gpus, scene), LOOK_S)
    yield Check(("staged",), partial(rest.staged, scene), LOOK_S)
    for name, section in scene.settings.gateway.routes.items():
        yield Check(("provider", "provider_key"), partial(rest.route, scene, name, section), LOOK_S, name)
    if not scene.settings.gateway.routes:
        yield Check(("provider",), _no_route, LOOK_S)
    yield Check(("gateway",), partial(rest.gateway, scene), LOOK_S)
    yield Check(("judge_key",), partial(rest.judge_key, scene), LOOK_S)
    yield Check(("prices",), partial(rest.prices, scene), LOOK_S)
    yield Check(("notify",), partial(rest.notify, scene, send=send), LOOK_S)
    yield Check(("ledger",), partial(rest.ledger, scene), LOOK_S)
    yield Check(("state_dir",), partial(places.state_dir, scene), LOOK_S)
    yield Check(("out_dir", "out_dir_owner"), partial(places.out_dir, scene), LOOK_S)
    yield Check(("clock_offset",), partial(places.clock_offset, scene), LOOK_S)
    yield Check(("disk",), partial(places.disk, scene), LOOK_S)
    yield Check(("cores", "memory"), partial(rest.room, scene), LOOK_S)
    yield Check(("open_files",), partial(rest.open_files, scene), LOOK_S)


async def _no_route() -> list[Row]:
    return [not_needed(code, "no route to a model is configured") for code in ("provider", "provider_key")]
