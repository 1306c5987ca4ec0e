"""The files of one verifier run while they are read, and the notes taken meanwhile.

Owns parsing each file once, and what is known of one that cannot be had whole.  Must not know which keys matter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from marathond.core.payload import MAX_WORDS, not_a_number, outside_unit, parse_json
from marathond.core.score.model import Number, Refusal
from marathond.core.score.names import CTRF, gate_file
from marathond.core.text import printable

MAX_REFUSALS = 200


class Payload:
    """``flags`` and ``refusals`` grow while one reads.  ``unread``: files that are there and were not handed over."""

    def __init__(self, files: Mapping[str, bytes], unread: Sequence[Refusal], whole: Collection[str] = ()) -> None:
        """:param whole: files of which more than the usual is asked; of another report nothing but its summary is kept in memory."""
        self._whole = frozenset(whole)
        self._files, self._unread = files, {refusal.source for refusal in unread if refusal.source}
        self._documents: dict[str, tuple[Any] | None] = {}
        self.flags: list[str] = []
        self.refusals: list[Refusal] = list(unread)

    def flag(self, flag: str) -> None:
        if flag not in self.flags:
            self.flags.append(flag)

    def refuse(self, source: str, key: str, why: str) -> None:
        if len(self.refusals) >= MAX_REFUSALS:
            self.flag("refusals_truncated")
            return
        self.refusals.append(Refusal(source, printable(key, MAX_WORDS), why))

    def names(self) -> list[str]:
        """Of every file that is there, also of one that was not handed over."""
        return sorted({*self._files, *self._unread})

    def has(self, source: str) -> bool:
        return source in self._files or source in self._unread

    def bytes_of(self, source: str) -> bytes | None:
        """None: not there, or not handed over."""
        return self._files.get(source) if source not in self._unread else None

    def broken(self, source: str) -> bool:
        """It is there, and cannot be had whole as an object."""
        return self.has(source) and not isinstance((self._document(source) or (None,))[0], dict)

    def table(self, source: str) -> dict[str, Any]:
        """The object in a JSON file; empty, with a refusal, when it cannot be had whole; empty when there is no file."""
        document = self._document(source)
        if document is None:
            return {}
        if isinstance(document[0], dict):
            return document[0]
        if not any((refusal.source, refusal.key) == (source, "") for refusal in self.refusals):
            self.refuse(source, "", "not an object")
        return {}

    def document(self, source: str) -> tuple[Any] | None:
        """Whatever JSON is in a file, in a box; None, with a refusal, when it cannot be had whole; None when there is no file."""
        return self._document(source)

    def _document(self, source: str) -> tuple[Any] | None:
        if source not in self._documents:
            data = self.bytes_of(source)
            self._documents[source] = None if data is None else self._parse(source, data)
        return self._documents[source]

    def _parse(self, source: str, data: bytes) -> tuple[Any] | None:
        try:
            value, repaired = parse_json(data.decode())
        except UnicodeDecodeError as error:
            self.refuse(source, "", f"not UTF-8 at byte {error.start}")
        except RecursionError:
            self.refuse(source, "", "nested too deeply")
        except ValueError as error:
            self.refuse(source, "", f"no valid JSON: {printable(str(error), MAX_WORDS)}" if data.strip() else "empty")
        else:
            if repaired:
                self.flag(f"repaired:{source}")
            if not isinstance(value, dict) or "-" not in value:
                return (value if source in self._whole else _kept(source, value),)
            self.flag("malformed_early_exit")
            self.refuse(source, "-", "keys and values are shifted by one: nothing in this file can be trusted")
        return None

    def unit(self, source: str, table: Mapping[str, Any], key: str) -> Number | None:
        """The number at ``key`` when it lies in [0, 1]; refused by name when something else stands there."""
        return None if key not in table else self.share(table[key], source, key)

    def share(self, value: Any, source: str, key: str) -> Number | None:
        if why := not_a_number(value) or outside_unit(value):
            self.refuse(source, key, why)
            return None
        return Number(float(value) + 0.0, source, key)  # of a negative zero: zero

    def count(self, value: Any, source: str, key: str) -> Number | None:
        """A whole number from 0; refused by name when it is none."""
        why = not_a_number(value) or ("no count: negative or not whole" if value < 0 or value != int(value) else "")
        if why:
            self.refuse(source, key, why)
            return None
        return Number(float(value), source, key)

    def pair(self, passed: Number | None, total: Number | None) -> tuple[Number, Number] | None:
        """Both, when the first is no more than the second."""
        if passed is None or total is None:
            return None
        if passed.value > total.value:
            self.refuse(passed.source, passed.key, f"more than {total.key}")
            return None
        return passed, total


def _kept(source: str, value: Any) -> Any:
    """Of a report its summary: a row for each test takes twenty times its size as text, and there may be two hundred reports."""
    if source != CTRF and gate_file(source) is None:
        return value
    results = value.get("results") if isinstance(value, dict) else None
    return {"results": {"summary": results.get("summary")}} if isinstance(results, dict) else {} if isinstance(value, dict) else None
