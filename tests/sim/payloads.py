"""What simulated verifiers write: the formats of the public benchmark, whole, torn and malformed.

Owns bytes by file name.  ``reward`` is what a reader must find, None where nobody may find one.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Payload:
    name: str
    reward: float | None
    files: dict[str, bytes]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _metrics(rng: random.Random, reward: float) -> dict[str, object]:
    total = rng.randint(2, 40)
    passed = total if reward >= 1 else rng.randint(0, total - 1)
    return {
        "health": True,
        "gates_passed": passed,
        "gates_total": total,
        "tests_passed": passed,
        "tests_failed": total - passed,
        "tests_total": total,
        "partial_score": round(passed / total, 4),
        "reward": int(reward),
    }


def whole(rng: random.Random) -> Payload:
    """With a reward that counts."""
    reward = float(rng.random() < 0.4)
    text = f"{int(reward)}\n".encode()
    match rng.randrange(6):
        case 0:
            return Payload("text", reward, {"reward.txt": text})
        case 1:
            return Payload("json", reward, {"reward.json": _json({"reward": reward, "correctness": reward, "ux": 0.5})})
        case 2:
            return Payload("stripe", reward, {"reward.txt": text, "metrics.json": _json(_metrics(rng, reward))})
        case 3:
            early = _json({"partial_score": 0.0, "reward": 0, "health": "false", "stage": "health_timeout"})
            return Payload("early", 0.0, {"reward.txt": b"0\n", "metrics.json": early})
        case 4:
            summary = {"results": {"summary": {"tests": 9, "passed": 9 if reward else 4, "failed": 0 if reward else 5}}}
            return Payload("ctrf", reward, {"reward.txt": text, "ctrf.json": _json(summary)})
        case _:
            broken = _json({"phase": "build_failed", "passed": 0, "failed": 3, "reward": 0})
            return Payload("build_failed", 0.0, {"reward.txt": b"0\n", "metrics.json": broken})


def unreadable(rng: random.Random) -> Payload:
    """Nothing that may be taken for a reward."""
    match rng.randrange(6):
        case 0:
            return Payload("nothing", None, {})
        case 1:
            return Payload("torn", None, {"reward.json": b'{"reward": 0.'})
        case 2:
            return Payload("off_by_one", None, {"metrics.json": b'{"-":"health","false":"stage","decrypt":null}'})
        case 3:
            return Payload("bare", None, {"reward.json": b"."})
        case 4:
            return Payload(
                "initialized", None, {"reward.txt": b"0\n", "metrics.json": _json({"phase": "initialized", "partial_score": 0.0})}
            )
        case _:
            return Payload("above", None, {"reward.txt": b"1.5\n"})


LINES = (
    "collected 12 items\n",
    "curl: (6) Could not resolve host: example.org\n",
    "OSError: [Errno 28] No space left on device\n",
    "requests.exceptions.ConnectionError: Connection refused\n",
)
"""Of a verifier's output; most of them the infrastructure's words."""
