"""What a verifier wrote, as numbers that each know where they came from."""

from marathond.core.score.names import CTRF, FIXED, METRICS, REWARD_JSON, REWARD_TXT, STAGES, gate_file
from marathond.core.score.read import EXTRACTOR, Fact, Number, Refusal, ScoreReading, read_score

__all__ = [
    "CTRF",
    "EXTRACTOR",
    "FIXED",
    "METRICS",
    "REWARD_JSON",
    "REWARD_TXT",
    "STAGES",
    "Fact",
    "Number",
    "Refusal",
    "ScoreReading",
    "gate_file",
    "read_score",
]
