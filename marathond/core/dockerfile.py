"""Which builder does a Dockerfile need, and which images does it build upon?  Text in, answers out.

Owns the list of what the engine's classic builder cannot do, or would do differently without a word.  Must not know engines.  Nothing is
built here: whatever is no Dockerfile at all is left to the builder, whose words are better.

Facts (the classic builder): ``RUN`` takes no flags, ``COPY`` only ``--from`` and ``--chown``; of a here-document 20.10 reads the lines as
instructions and 26.1 runs an empty one, without a word; ``# syntax=`` is passed over and ``ARG TARGETARCH`` is empty, both silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

CLASSIC_FLAGS = {
    "ADD": frozenset({"chown"}),
    "COPY": frozenset({"chown", "from"}),
    "FROM": frozenset({"platform"}),
    "HEALTHCHECK": frozenset({"interval", "timeout", "start-period", "retries"}),
    "RUN": frozenset[str](),
}
"""Flags that the classic builder knows, by instruction; an instruction that is not in here takes none anywhere."""

PLATFORM_ARGS = frozenset(f"{side}{what}" for side in ("BUILD", "TARGET") for what in ("PLATFORM", "OS", "ARCH", "VARIANT"))
"""Build arguments that only BuildKit fills in."""

_DIRECTIVE = re.compile(r"#\s*(?P<key>[A-Za-z][\w.-]*)\s*=\s*(?P<value>.+?)\s*")
_FLAG = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?:=\S*)?")
_HEREDOC = re.compile(r"\d*<<(?P<dash>-?)(?P<word>[^<\s]+)")
_VARIABLE = re.compile(r"\$(?:(?P<bare>\w+)|\{(?P<name>\w+)(?:(?P<how>:[-+])(?P<word>[^}]*))?\})")
_GIT_SOURCE = re.compile(r"(?:git@\S+|(?:https?|ssh|git)://\S+?\.git(?:#\S*)?)")


def buildkit_reason(dockerfile: str) -> str:
    """Why this Dockerfile needs BuildKit, as in ``line 3: RUN --mount``; empty when the classic builder does it.

    :param dockerfile: its text; line ends of any kind.
    """
    lines = dockerfile.lstrip("\ufeff").splitlines()
    directives = _directives(lines)
    if "syntax" in directives:
        return f"# syntax={directives['syntax']}"
    for number, words in _instructions(lines, directives.get("escape", "\\")):
        if reason := _reason(words, lines[number:]):
            return f"line {number}: {reason}"
    return ""


def _directives(lines: list[str]) -> dict[str, str]:
    """``# key=value`` lines at the very top; the first line of any other kind ends them."""
    found: dict[str, str] = {}
    for line in lines:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            break
        found.setdefault(match["key"].lower(), match["value"])
    return found


def _instructions(lines: list[str], escape: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its last line, words) of each instruction, continuation lines joined, comments and empty lines left out."""
    text = ""
    for number, line in enumerate(lines, start=1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        if bare.endswith(escape):
            text += bare[: -len(escape)] + " "
            continue
        yield number, (text + bare).split()
        text = ""
    if text.strip():
        yield len(lines), text.split()


def _reason(words: list[str], below: list[str]) -> str:
    """``below``: the lines after the instruction, where a here-document would stand."""
    instruction, arguments = words[0].upper(), words[1:]
    if instruction == "ONBUILD" and arguments:
        return _reason(arguments, below)
    for word in arguments:
        flag = _FLAG.fullmatch(word)
        if flag is None:
            break
        if flag["name"] not in CLASSIC_FLAGS.get(instruction, {flag["name"]}):
            return f"{instruction} --{flag['name']}"
    if instruction in ("RUN", "COPY", "ADD") and any(_is_heredoc(word, below) for word in arguments):
        return f"{instruction} with a here-document"
    if instruction == "ADD" and any(_GIT_SOURCE.fullmatch(word) for word in arguments[:-1]):
        return "ADD of a git repository"
    if instruction == "ARG":
        return next((f"ARG {word}" for word in arguments if word in PLATFORM_ARGS), "")
    if instruction == "FROM":
        used = [name for name in sorted(PLATFORM_ARGS) if re.search(rf"\$(?:{name}\b|\{{{name}\b)", " ".join(arguments))]
        return f"FROM with ${used[0]}" if used else ""
    return ""


def _is_heredoc(word: str, below: list[str]) -> bool:
    """``<<EOF``, with a line below that ends it: without one it is a shell's own business."""
    match = _HEREDOC.fullmatch(word)
    if match is None:
        return False
    end = match["word"].replace('"', "").replace("'", "")
    return bool(end) and any((line.lstrip("\t") if match["dash"] else line) == end for line in below)


def base_images(dockerfile: str, build_args: Mapping[str, str]) -> tuple[str, ...]:
    """Images that it takes from elsewhere (``FROM``, ``COPY --from``), in order, each once; its own stages and ``scratch`` are none.

    A variable that neither an ``ARG`` before the first ``FROM`` nor ``build_args`` gives is left in the name as ``$NAME``: nobody can tell.
    """
    lines = dockerfile.lstrip("\ufeff").splitlines()
    values, stages, found = dict[str, str](), set[str](), dict[str, None]()
    for _, words in _instructions(lines, _directives(lines).get("escape", "\\")):
        instruction, arguments = words[0].upper(), words[1:]
        if instruction == "ARG" and not stages:
            for word in arguments:
                name, given, default = word.partition("=")
                if name in build_args:
                    values[name] = build_args[name]
                elif given:
                    values[name] = _filled(default.strip("\"'"), values)
        elif instruction == "FROM" and (plain := [word for word in arguments if not word.startswith("--")]):
            image = _filled(plain[0], values)
            if image.lower() not in stages and image.lower() != "scratch":
                found[image] = None
            stages.add(plain[2].lower() if len(plain) > 2 else f"\0{len(stages)}")
        elif instruction == "COPY":
            for source in (word.removeprefix("--from=") for word in arguments if word.startswith("--from=")):
                if not source.isdigit() and source.lower() not in stages:
                    found[source] = None
    return tuple(found)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """``$NAME``, ``${NAME}``, ``${NAME:-word}`` and ``${NAME:+word}``."""

    def value(match: re.Match[str]) -> str:
        name = match["bare"] or match["name"]
        if match["how"] == ":-":
            return values.get(name) or match["word"]
        if match["how"] == ":+":
            return match["word"] if values.get(name) else ""
        return values.get(name, f"${name}")

    return _VARIABLE.sub(value, text)
