"""What a verifier wrote, as numbers that each know where they came from."""

from marathond.core.score.model import EXTRACTOR, Fact, Number, Part, Refusal, ScoreReading, Words
from marathond.core.score.names import CTRF, FIXED, METRICS, REWARD_JSON, REWARD_TXT, STAGES, gate_file
from marathond.core.score.read import CONFIGURATION, read_score
from marathond.core.score.rules import COLUMNS, RULE, Overrides, ScorePath, files_of, parse, rules_from_data

__all__ = [
    "COLUMNS",
    "CONFIGURATION",
    "CTRF",
    "EXTRACTOR",
    "FIXED",
    "METRICS",
    "REWARD_JSON",
    "REWARD_TXT",
    "RULE",
    "STAGES",
    "Fact",
    "Number",
    "Overrides",
    "Part",
    "Refusal",
    "ScorePath",
    "ScoreReading",
    "Words",
    "files_of",
    "gate_file",
    "parse",
    "read_score",
    "rules_from_data",
]
