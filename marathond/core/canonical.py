"""One text for one meaning, of data that is hashed or compared.

Owns that form: changing it changes every hash over it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def canonical_json(data: Mapping[str, Any]) -> str:
    """One text per meaning: sorted keys, no spaces, UTF-8, no NaN; whole floats as integers, so that ``1`` and ``1.0`` are equal.

    :raises ValueError: NaN or infinity in it.
    """
    return json.dumps(_plain(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
