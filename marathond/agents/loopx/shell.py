"""The commands in the text of a shell script, read without running it.  Pure.

Owns the shell's grammar as far as it takes to tell a command from a word: quotes, comments, operators, redirections, here-documents,
substitutions, functions, and variables that the text itself sets.  Must not know which commands are of interest.

What a run would decide (a branch, how often a loop goes round, another script's text) is not known here: each command in the text is there
once for each place where it stands.  Text that is no shell script gives some commands or none, never an error.  All of it is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

CHARS_AT_MOST = 1 << 17
"""What Linux takes as one argument of a program, such as the one after ``sh -c``."""
COMMANDS_AT_MOST, WORDS_AT_MOST, DOCUMENTS_AT_MOST, DEPTH_AT_MOST = 10_000, 64, 100, 16
EXPANDED_AT_MOST = 1 << 20
"""Characters that variables may put in, all together."""

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?!$0-9-]")
_BRACED = re.compile(r"([A-Za-z_]\w*)(\[[@*]\])?(?::?-(.*))?", re.DOTALL)
_NOTHING = re.compile(r"[ \t]*\)")
_ANSI = re.compile(r"'((?:[^'\\]|\\.)*)'?", re.DOTALL)
_BACKQUOTED = re.compile(r"((?:[^`\\]|\\.)*)`?", re.DOTALL)
_DELIMITER = re.compile(r"-?[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s;&|<>()'\"\\])+)")
_BEFORE = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "time", "coproc"})
"""Words before a command that are no part of it."""
_HEADS = frozenset({"for", "select", "case"})
"""What follows them on the way to the next separator is no command."""
_SETTERS = frozenset({"export", "local", "readonly", "declare", "typeset"})
_FINDERS = (("command", "-v"), ("which",), ("type", "-p"))
"""Commands that print where another one is."""


@dataclass(frozen=True, slots=True)
class Command:
    """``words`` without quotes, variables put in as far as they are known; ``fed``: its here-documents."""

    words: tuple[str, ...]
    fed: str = ""


@dataclass(slots=True)
class _Scope:
    """What the text has set so far."""

    variables: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    functions: dict[str, list[Command]] = field(default_factory=dict)
    left: int = EXPANDED_AT_MOST
    documents: int = 0


@dataclass(slots=True)
class _Words:
    """The command that is being read.  ``word`` None: between two words."""

    done: list[str] = field(default_factory=list)
    word: str | None = None
    target: bool = False
    """The next word is a redirection's."""
    fed: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def split(self, values: list[str]) -> None:
        """An expansion that may be several words."""
        for number, value in enumerate(values):
            if number:
                self.flush()
            self.add(value)

    def flush(self) -> None:
        if self.word is not None:
            if self.target:
                self.target = False
            else:
                self.done.append(self.word)
        self.word = None


def commands(text: str) -> list[Command]:
    """In their order."""
    return _Reader(text[:CHARS_AT_MOST], _Scope(), 0).all()


class _Reader:
    def __init__(self, text: str, scope: _Scope, depth: int) -> None:
        self.text, self.scope, self.depth = text, scope, depth
        self.at = 0
        self.found: list[Command] = []
        self._defining = ""
        self._body: list[Command] | None = None
        """Of the function that is being read."""
        self._braces = 0

    def all(self) -> list[Command]:
        while self.at < len(self.text):
            self._script("")
        return self.found

    def substitutions(self) -> list[Command]:
        """Of a text that is not itself a script: what it runs where it stands in double quotes."""
        now = _Words()
        while self.at < len(self.text):
            self._piece(now, quoted=True)
        return self.found

    # ---- a list of commands

    def _script(self, close: str) -> None:
        """Up to ``close`` or the end."""
        now = _Words()
        self.depth += 1
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == close and char:
                self.at += 1
                break
            if char in " \t":
                now.flush()
                self.at += 1
            elif char == "#" and now.word is None:
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in "<>":
                self._redirection(now)
            elif char == "(":
                self._open(now)
            elif char in "\n;&|)":
                self.at += 1
                piped = char == "|" and self.text[self.at : self.at + 1] != "|"
                fed = list(now.fed) if piped else []
                self._end(now)
                now.fed = fed
            else:
                self._piece(now, quoted=False)
        self._end(now)
        self.depth -= 1

    def _open(self, now: _Words) -> None:
        """A subshell, a function's head, or an array's values."""
        self.at += 1
        if now.word is not None and (match := _ASSIGNMENT.fullmatch(now.word)) and not match[2] and not now.done:
            inner = self._inside(")")
            self.scope.arrays[match[1]] = [word for command in inner for word in command.words]
            now.word = None
            return
        now.flush()
        head = _NOTHING.match(self.text, self.at)
        if len(now.done) in (1, 2) and head is not None:
            self.at = head.end()
            self._defining = now.done[-1]
            now.done.clear()
            return
        self._end(now)
        if self.depth < DEPTH_AT_MOST:
            self._script(")")

    def _inside(self, close: str) -> list[Command]:
        """What stands up to ``close``, without counting it."""
        outer, self.found = self.found, []
        body, self._body = self._body, None
        if self.depth < DEPTH_AT_MOST:
            self._script(close)
        inner, self.found, self._body = self.found, outer, body
        return inner

    # ---- one command

    def _end(self, now: _Words) -> None:
        now.flush()
        self._settle(Command(tuple(now.done[:WORDS_AT_MOST]), "\n".join(now.fed)))
        now.done.clear()
        now.fed.clear()
        now.target = False

    def _settle(self, command: Command) -> None:
        words = list(command.words)
        if words and words[0] == "function" and len(words) > 1:
            self._defining, words = words[1], words[2:]
        if self._defining and words and words[0] == "{":
            self._body, self._braces, words = [], 0, words[1:]
        while words and (words[0] in _BEFORE or words[0] == "{"):
            self._braces += words[0] == "{"
            words = words[1:]
        if words and words[0] == "}" and self._body is not None:
            if self._braces == 0:
                self.scope.functions[self._defining], self._body, self._defining = self._body, None, ""
                return
            self._braces -= 1
        if not words or words[0] in _HEADS:
            return
        words = self._assigned(words)
        if words:
            self._take(Command(tuple(words), command.fed))

    def _assigned(self, words: list[str]) -> list[str]:
        """Without what it sets; what it sets for itself alone is forgotten."""
        count = next((n for n, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
        lasting = words if count == len(words) else words[1:] if words[0] in _SETTERS else []
        for word in lasting:
            if match := _ASSIGNMENT.fullmatch(word):
                self.scope.variables[match[1]] = match[2]
        return words[count:]

    def _take(self, command: Command) -> None:
        into = self.found if self._body is None else self._body
        if len(into) >= COMMANDS_AT_MOST:
            return
        body = self.scope.functions.get(command.words[0]) if self._body is None else None
        into += [command] if body is None else [_given(inner, command.words[1:]) for inner in body]

    # ---- words

    def _piece(self, now: _Words, *, quoted: bool) -> None:
        """One character of a word, or what begins with it."""
        char = self.text[self.at]
        self.at += 1
        if char == "\\":
            following = self.text[self.at : self.at + 1]
            self.at += 1
            if following != "\n":
                now.add(following if not quoted or following in '"\\$`' else char + following)
        elif char == "$":
            self._dollar(now, quoted=quoted)
        elif char == "`":
            now.add(self._backquoted())
        elif quoted:
            now.add(char)
        elif char == "'":
            end = self.text.find("'", self.at)
            end = len(self.text) if end < 0 else end
            now.add(self.text[self.at : end])
            self.at = end + 1
        elif char == '"':
            now.add("")
            while self.at < len(self.text) and self.text[self.at] != '"':
                self._piece(now, quoted=True)
            self.at += 1
        else:
            now.add(char)

    def _dollar(self, now: _Words, *, quoted: bool) -> None:
        following = self.text[self.at : self.at + 1]
        if following == "(":
            self.at += 1
            now.add(self._substituted())
        elif following == "{":
            end = self.text.find("}", self.at)
            end = len(self.text) if end < 0 else end
            inner, self.at = self.text[self.at + 1 : end], end + 1
            self._expand(now, inner, f"${{{inner}}}", quoted=quoted)
        elif following == "'" and not quoted:
            match = _ANSI.match(self.text, self.at)
            assert match is not None
            now.add(match[1])
            self.at = match.end()
        elif match := _NAME.match(self.text, self.at):
            self.at = match.end()
            self._expand(now, match[0], f"${match[0]}", quoted=quoted)
        else:
            now.add("$")

    def _expand(self, now: _Words, inner: str, written: str, *, quoted: bool) -> None:
        match = _BRACED.fullmatch(inner)
        values: list[str] | None = None
        if match is not None and match[2]:
            values = self.scope.arrays.get(match[1])
        elif match is not None and (value := self.scope.variables.get(match[1], match[3])) is not None:
            values = [value] if quoted or not value.split() else value.split()
        cost = sum(map(len, values or ()))
        if values is None or cost > self.scope.left:
            now.add(written)
        else:
            self.scope.left -= cost
            now.split(values)

    def _substituted(self) -> str:
        """Its commands count; what it prints is known where it asks for a program's place."""
        inner = self._inside(")")
        self._more(inner)
        return _printed(inner)

    def _backquoted(self) -> str:
        match = _BACKQUOTED.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        if self.depth >= DEPTH_AT_MOST:
            return ""
        inner = _Reader(re.sub(r"\\([`\\$])", r"\1", match[1]), self.scope, self.depth + 1).all()
        self._more(inner)
        return _printed(inner)

    def _more(self, inner: list[Command]) -> None:
        into = self.found if self._body is None else self._body
        into += inner[: max(0, COMMANDS_AT_MOST - len(into))]

    # ---- redirections

    def _redirection(self, now: _Words) -> None:
        """``<(…)`` and ``>(…)`` hold commands; a here-document waits for the next line; of any other the next word is no argument."""
        char, rest = self.text[self.at], self.text[self.at : self.at + 3]
        if rest[1:2] == "(" and now.word is None:
            self.at += 2
            now.add(self._substituted())
            return
        if now.word is not None and now.word.isdigit():
            now.word = None
        now.flush()
        if rest.startswith("<<") and rest != "<<<":
            self.at += 2
            self._document(now)
            return
        while self.text[self.at : self.at + 1] in (char, "<", ">", "&", "|") and self.text[self.at : self.at + 1]:
            self.at += 1
        now.target = True

    def _document(self, now: _Words) -> None:
        """Its body is taken out of the text, so that what follows the line is the next command."""
        indented = self.text[self.at : self.at + 1] == "-"
        match = _DELIMITER.match(self.text, self.at)
        if match is None or self.scope.documents >= DOCUMENTS_AT_MOST:
            return
        self.scope.documents += 1
        self.at = match.end()
        end, literal = re.sub(r"['\"\\]", "", match[1]), re.search(r"['\"\\]", match[1]) is not None
        begin = self.text.find("\n", self.at) + 1 or len(self.text)
        at, lines = begin, []
        while at < len(self.text):
            until = self.text.find("\n", at)
            until = len(self.text) if until < 0 else until
            line, at = self.text[at:until], until + 1
            line = line.lstrip("\t") if indented else line
            if line == end:
                break
            lines.append(line)
        self.text = self.text[:begin] + self.text[at:]
        body = "\n".join(lines)
        now.fed.append(body)
        if not literal and self.depth < DEPTH_AT_MOST:
            self._more(_Reader(body, self.scope, self.depth + 1).substitutions())


def _given(command: Command, arguments: tuple[str, ...]) -> Command:
    """A function's command with the arguments of its call."""
    known: Mapping[str, tuple[str, ...]] = {
        **{f"${n}": (value,) for n, value in enumerate(arguments[:9], 1)},
        **dict.fromkeys(("$@", "$*", "${@}"), arguments),
    }
    words = tuple(word for each in command.words for word in known.get(each, (each,)))
    return Command(words[:WORDS_AT_MOST] or command.words, command.fed)


def _printed(inner: list[Command]) -> str:
    """What the commands print, where they ask for a program's place: its name.  Else nothing is known."""
    words = inner[0].words if inner else ()
    return next((words[len(finder)] for finder in _FINDERS if words[: len(finder)] == finder and len(words) > len(finder)), "")
