"""On which line of a TOML file each key stands.

Owns a scanner that walks text which ``tomllib`` has already accepted; it finds keys, it judges nothing.  (tomlkit keeps the formatting
of a document but tells no line numbers; tomllib tells neither.)  A property test compares its keys with tomllib's on generated files.
"""

from __future__ import annotations

import bisect
import re
import tomllib

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"[ \t]*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]+")
_STRINGS = {
    '"""': re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    "'''": re.compile(r"'''(?:[^']|'(?!''))*'{3,5}", re.DOTALL),
    '"': re.compile(r'"(?:[^"\\]|\\.)*"'),
    "'": re.compile(r"'[^']*'"),
}


def index_lines(text: str) -> dict[KeyPath, int]:
    """Line (from 1) of every table, key and array element of a VALID document; array elements carry their index in the path.

    :raises ValueError: the text is not what the scanner takes for TOML (never for text that tomllib accepts).
    """
    return _Scanner(text.replace("\r\n", "\n")).run()


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int | None:
    """Line of ``path``, or of the nearest thing around it; None for a section that is nowhere in the file."""
    for end in range(len(path), 0, -1):
        if (line := lines.get(path[:end])) is not None:
            return line
    return None


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.newlines = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[KeyPath, int] = {}
        self.last_index: dict[KeyPath, int] = {}  # array of tables -> index of its newest element

    def run(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self.skip(_BLANK_LINES) < len(self.text):
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.pair(table)
        return self.lines

    def header(self) -> KeyPath:
        start, array = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if array else 1
        parts = self.key()
        self.expect("]]" if array else "]")
        path: KeyPath = ()
        for part in parts[:-1]:
            path = self.into((*path, part), start)
        path = (*path, parts[-1])
        if not array:
            return self.into(path, start)
        self.note(path, start)
        self.last_index[path] = self.last_index.get(path, -1) + 1
        return self.into(path, start)

    def into(self, path: KeyPath, start: int) -> KeyPath:
        """The table that a header means by ``path``: of an array of tables, its newest element."""
        self.note(path, start)
        if path in self.last_index:
            path = (*path, self.last_index[path])
            self.note(path, start)
        return path

    def pair(self, table: KeyPath) -> None:
        start, path = self.at, table
        for part in self.key():
            path = (*path, part)
            self.note(path, start)
        self.expect("=")
        self.value(path)

    def value(self, path: KeyPath) -> None:
        self.skip(_BLANK)
        for quote, pattern in _STRINGS.items():
            if self.text.startswith(quote, self.at):
                self.take(pattern)
                return
        if self.text.startswith("[", self.at):
            self.array(path)
        elif self.text.startswith("{", self.at):
            self.inline_table(path)
        else:
            self.take(_SCALAR)

    def array(self, path: KeyPath) -> None:
        self.at, index = self.at + 1, 0
        while not self.closed("]"):
            element = (*path, index)
            self.note(element, self.at)
            self.value(element)
            index += 1
            self.comma()

    def inline_table(self, path: KeyPath) -> None:
        self.at += 1
        while not self.closed("}"):
            self.pair(path)
            self.comma()

    def key(self) -> list[str]:
        parts = [self.key_part()]
        while self.text.startswith(".", self.skip(_BLANK)):
            self.at += 1
            parts.append(self.key_part())
        return parts

    def key_part(self) -> str:
        self.skip(_BLANK)
        quote = self.text[self.at : self.at + 1]
        if quote not in {'"', "'"}:
            return self.take(_BARE_KEY)
        return str(tomllib.loads(f"k = {self.take(_STRINGS[quote])}")["k"])

    def closed(self, bracket: str) -> bool:
        if not self.text.startswith(bracket, self.skip(_BLANK_LINES)):
            return False
        self.at += 1
        return True

    def comma(self) -> None:
        if self.text.startswith(",", self.skip(_BLANK_LINES)):
            self.at += 1

    def expect(self, literal: str) -> None:
        if not self.text.startswith(literal, self.skip(_BLANK)):
            raise ValueError(f"line {self.line()}: no {literal!r}")
        self.at += len(literal)

    def take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError(f"line {self.line()}: not TOML")
        self.at = match.end()
        return match.group()

    def skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at

    def note(self, path: KeyPath, start: int) -> None:
        self.lines.setdefault(path, self.line(start))

    def line(self, at: int | None = None) -> int:
        return bisect.bisect_left(self.newlines, self.at if at is None else at) + 1


def dotted(path: KeyPath) -> str:
    """``campaign.tasks[0]``: a place in a list by its index, as people write it."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
