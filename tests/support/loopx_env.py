"""The real LoopX for tests: the pinned wheel and Node, on the demo's Python; staged once, beside codex, in ``.cache/codex``.

Staged as ``marathonctl stage`` does it.  What lies there serves every state folder that :func:`codex_env.staged_into` links to it.
"""

from __future__ import annotations

import functools

from marathond.demo.portable_python import portable_python
from marathond.staging import pins_loopx, store
from tests.support.codex_env import CACHE, staged

VERSION = pins_loopx.DEFAULT_VERSION


@functools.cache
def loopx_wanted() -> store.WantedLoopX:
    """What ``[loopx]`` with nothing but :func:`section` asks for.  Raises SetupError with one clear line."""
    node = pins_loopx.DEFAULT_NODE
    return store.WantedLoopX(
        version=VERSION,
        sha256=pins_loopx.KNOWN[VERSION],
        wheel=None,
        commit=None,
        node_version=node,
        node_integrity=pins_loopx.KNOWN_NODE[node],
        node_folder=None,
        python=str(portable_python(CACHE.parent)),
    )


def section() -> str:
    """Of a configuration whose arms have LoopX."""
    return f'[loopx]\npython = "{loopx_wanted().python}"\n'


@functools.cache
def loopx_tree() -> store.StagedTree:
    """Staged once for all tests.  Raises SetupError with one clear line."""
    return staged(loopx_wanted(), "and its Node (about 60 MB, once)")
