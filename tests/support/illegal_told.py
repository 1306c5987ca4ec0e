"""Rules of what is told of a campaign, with a statement that each refuses, for test_schema_rules.py.  No test of its own."""

from __future__ import annotations

import sqlite3

ROW = "INSERT INTO disclosure (campaign_id, version, position, code, arms_json, text, compared_with, at_ms)"

TOLD: list[tuple[str, str]] = [
    ("disclosure_arms_are_a_list", f"{ROW} VALUES (1, 2, 2, 'c', 'no', 't', 'w', 1)"),
    ("disclosure_arms_are_a_list", f"{ROW} VALUES (1, 2, 2, 'c', '\"plain\"', 't', 'w', 1)"),
    ("disclosure_arms_are_a_list", f"{ROW} VALUES (1, 2, 2, 'c', '[]', 't', 'w', 1)"),
    ("disclosure_names_arms_of_the_campaign", f"{ROW} VALUES (1, 2, 2, 'c', '[\"plain\",\"nobody\"]', 't', 'w', 1)"),
    ("disclosure_says_something", f"{ROW} VALUES (1, 2, 2, 'c', '[\"plain\"]', ' ', 'w', 1)"),
    ("disclosure_is_compared", f"{ROW} VALUES (1, 2, 2, 'c', '[\"plain\"]', 't', '', 1)"),
    ("disclosure_said_once", f"{ROW} VALUES (1, 2, 2, 'told', '[\"plain\"]', 'other', 'w', 1)"),
    ("disclosure_follows_the_last", f"{ROW} VALUES (1, 1, 2, 'c', '[\"plain\"]', 't', 'w', 1)"),
    ("disclosure_follows_the_last", f"{ROW} VALUES (1, 2, 3, 'c', '[\"plain\"]', 't', 'w', 1)"),
    ("disclosure_follows_the_last", f"{ROW} VALUES (1, 3, 2, 'c', '[\"plain\"]', 't', 'w', 1)"),
    ("disclosure_follows_the_last", f"{ROW} VALUES (1, 4, 1, 'c', '[\"plain\"]', 't', 'w', 1)"),
    ("disclosure_is_append_only", "UPDATE disclosure SET text = 'other'"),
    ("disclosure_is_append_only", "DELETE FROM disclosure"),
]


def plant_told(c: sqlite3.Connection) -> None:
    """Two versions of what is told of the first campaign."""
    for version in (1, 2):
        c.execute(f"{ROW} VALUES (1, ?, 1, 'told', '[\"plain\"]', 'so', 'otherwise', 1)", (version,))
