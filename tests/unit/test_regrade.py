"""What differs between two readings of the same files, and what does not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.regrade import COLUMNS, Change, Graded, carried, differences

OLD = Graded(1, {"reward": 0.0, "partial": None}, {"reward": "reward.txt"}, ("verified_again", "no_tests"), {"a": ("1", "metrics.json:a")})


def graded(**over: object) -> Graded:
    fields = {name: getattr(OLD, name) for name in ("extractor", "columns", "sources", "flags", "parts")}
    return Graded(**{**fields, **over})  # type: ignore[arg-type]


def test_columns_flags_and_parts_are_told_with_their_sources() -> None:
    new = graded(
        extractor=2,
        columns={"reward": 1.0, "partial": 0.5},
        sources={"reward": "reward.json:reward", "partial": "metrics.json:partial_score"},
        flags=("verified_again", "build_failed"),
        parts={"a": ("2", "metrics.json:a"), "b": ("1", "metrics.json:b")},
    )
    assert differences(OLD, new) == (
        Change("reward", "0", "1", "reward.json:reward"),
        Change("partial", "-", "0.5", "metrics.json:partial_score"),
        Change("flags", "no_tests", "build_failed", ""),
        Change("parts", "1", "2", "1 added, 1 changed"),
    )


def test_a_value_that_comes_from_elsewhere_is_a_difference_and_another_extractor_alone_is_none() -> None:
    moved = graded(sources={"reward": "reward.json:reward"})
    assert differences(OLD, moved) == (Change("reward", "0", "0", "reward.json:reward (was reward.txt)"),)
    assert differences(OLD, graded(extractor=2, flags=("no_tests", "verifier_oom"))) == ()
    assert carried(OLD) == ("verified_again",)


numbers = st.one_of(st.none(), st.floats(0, 1), st.integers(0, 9))
scores = st.builds(
    Graded,
    st.integers(1, 3),
    st.fixed_dictionaries(dict.fromkeys(COLUMNS, numbers)),
    st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(["a.json:x", "b.json:y"])),
    st.lists(st.sampled_from(["no_tests", "build_failed", "verified_again", "log:dns"]), unique=True).map(tuple),
    st.dictionaries(st.sampled_from("abc"), st.tuples(st.sampled_from("12"), st.just("m.json"))),
)


@settings(max_examples=80, deadline=None)
@given(scores, scores)
def test_a_reading_differs_from_itself_in_nothing_and_every_changed_column_is_told(old: Graded, new: Graded) -> None:
    assert differences(old, old) == ()
    told = {change.column for change in differences(old, new)}
    assert {name for name in COLUMNS if old.columns[name] != new.columns[name]} <= told
