"""What a verifier wrote, as numbers that each know where they came from."""

from marathond.core.score.model import EXTRACTOR, Fact, Number, Part, Refusal, ScoreReading, Words
from marathond.core.score.names import CTRF, FIXED, METRICS, REWARD_JSON, REWARD_TXT, STAGES, gate_file
from marathond.core.score.read import CONFIGURATION, read_score
from marathond.core.score.refused import FILE, REFUSED, RefusedValue, example, refused_values
from marathond.core.score.rules import COLUMNS, RULE, Overrides, ScorePath, files_of, parse, rules_from_data

__all__ = [
    "COLUMNS",
    "CONFIGURATION",
    "CTRF",
    "EXTRACTOR",
    "FILE",
    "FIXED",
    "METRICS",
    "REFUSED",
    "REWARD_JSON",
    "REWARD_TXT",
    "RULE",
    "STAGES",
    "Fact",
    "Number",
    "Overrides",
    "Part",
    "Refusal",
    "RefusedValue",
    "ScorePath",
    "ScoreReading",
    "Words",
    "example",
    "files_of",
    "gate_file",
    "parse",
    "read_score",
    "refused_values",
    "rules_from_data",
]
