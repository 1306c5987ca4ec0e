"""Foreign text is shown without its power; durations and instants read as people write them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.text import duration, fields, iso_utc, printable


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;Zm9v\x07x", "x"),
        ("\x1bPdevice\x1b\\x", "x"),
        ("\x1b]open\nnext", "open next"),
        ("\x1bcreset", "reset"),
        ("ends with \x1b", "ends with"),
        ("\x1b\x1b[31m[31mnested", "[31mnested"),
        ("a\0b\x08\x7fc", "abc"),
        ("a\r\nb\tc\u2028d", "a b c d"),
        ("user\u202etxt.exe\u2066\u200f", "usertxt.exe"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("lone \ud800", "lone \ufffd"),
        ("tag\U000e0041", "tag"),
        ("naïve 日本 🧪", "naïve 日本 🧪"),
        ("", ""),
    ],
)
def test_printable_takes_the_power_out(raw: str, shown: str) -> None:
    assert printable(raw, 80) == shown


def test_printable_marks_a_cut() -> None:
    assert printable("abcdef", 6) == "abcdef"
    assert printable("abcdefg", 6) == "abcde…"
    assert printable("x", 0) == ""
    assert printable("\x1b[0m" * 1_000_000 + "hidden", 10) == ""
    assert printable("ab" + "\x1b[0m" * 1_000_000 + "hidden", 10) == "ab…"


@given(st.text(st.characters() | st.sampled_from("\x1b[]\x9b\x07\\;m0\n\u202e"), max_size=200), st.integers(1, 40))
def test_printable_is_bounded_harmless_and_settled(raw: str, max_len: int) -> None:
    shown = printable(raw, max_len)
    assert len(shown) <= max_len
    assert all(unicodedata.category(character) not in {"Cc", "Cs", "Zl", "Zp"} for character in shown)
    assert not set(shown) & set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert printable(shown, max_len) == shown


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0s"),
        (12.9, "12s"),
        (59.999, "59s"),
        (60, "1m00s"),
        (242, "4m02s"),
        (3599, "59m59s"),
        (13260, "3h41m"),
        (22320, "6h12m"),
        (111600, "31h00m"),
        (4 * 86400 + 3600, "4d01h"),
        (-242, "-4m02s"),
        (-0.5, "0s"),
        (float("nan"), "unknown"),
        (float("inf"), "unknown"),
    ],
)
def test_duration(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_iso_utc() -> None:
    assert iso_utc(0) == "1970-01-01T00:00:00.000Z"
    assert iso_utc(1795964850123) == "2026-11-29T15:07:30.123Z"
    assert iso_utc(-1) == "1969-12-31T23:59:59.999Z"
    with pytest.raises(OverflowError):
        iso_utc(10**18)


def test_an_engine_s_id_among_fields_is_as_short_as_its_own_commands_show_it() -> None:
    assert fields({"network": "0123456789abcdef" * 4, "hosts": 3}) == "network 0123456789ab, hosts 3"
    digest = f"sha256:{'a' * 64}"
    assert fields({"image": digest, "odd": "a" * 63}) == f"image {digest}, odd {'a' * 63}"
