"""Which builder a Dockerfile needs."""

from __future__ import annotations

import pytest

from marathond.core.dockerfile import buildkit_reason

CLASSIC = {
    "plain": "FROM debian:12\nRUN apt-get update\nCOPY --chown=1:1 --from=build /a /b\nADD --chown=1 a.tar /\n",
    "healthcheck": "FROM a\nHEALTHCHECK --interval=5s --retries=3 CMD test --mount=x\n",
    "flags of the command": 'FROM a\nRUN tool --mount=type=cache x\nENTRYPOINT ["x", "--link"]\nCMD --chmod\n',
    "a comment that names it": "FROM a\n# RUN --mount=type=cache\n# syntax=docker/dockerfile:1\nRUN true\n",
    "a directive after a comment is none": "# hello\n# syntax=docker/dockerfile:1\nFROM a\n",
    "a shell's own here-document in one line": "FROM a\nRUN bash -c 'cat <<EOF'\n",
    "a here-string": "FROM a\nRUN cat <<<word\nword\n",
    "a shift": "FROM a\nRUN echo $((1<<3))\n3))\n",
    "an argument with a default of its own name": "FROM a\nARG ARCH=x86\nARG TARGETARCH=amd64\n",
    "a file that is named like git": "FROM a\nADD x.git /x\n",
    "a platform by name": "FROM --platform=linux/amd64 a\n",
    "no Dockerfile at all": "\x00\x01",
    "empty": "",
    "only a continuation": "\\",
}
BUILDKIT = {
    "# syntax=docker/dockerfile:1": "# syntax=docker/dockerfile:1\nFROM a\n",
    "# syntax=docker/dockerfile:1.4": "\ufeff#  escape=`\r\n#SYNTAX = docker/dockerfile:1.4  \r\nFROM a\r\n",
    "line 2: RUN --mount": "FROM a\nrun --mount=type=cache,target=/c true\n",
    "line 3: RUN --network": "FROM a\n\nRUN --network=none true\n",
    "line 2: COPY --link": "FROM a\nCOPY --chown=1 --link a /a\n",
    "line 2: COPY --chmod": "FROM a\nCOPY --chmod=755 a /a\n",
    "line 2: ADD --checksum": "FROM a\nADD --checksum=sha256:0 https://x/y /y\n",
    "line 5: RUN --mount": "FROM a\nRUN \\\n# in between\n  --mount=type=tmpfs,target=/t \\\n  true\n",
    "line 4: RUN --security": "# escape=`\nFROM a\nRUN `\n --security=insecure true\n",
    "line 2: RUN with a here-document": "FROM a\nRUN <<EOF\necho a\nEOF\n",
    "line 3: COPY with a here-document": 'FROM a\nRUN true\nCOPY <<-"END" /x\n\tbody\n\tEND\n',
    "line 2: ADD of a git repository": "FROM a\nADD https://host/x.git#v1 /x\n",
    "line 2: ARG TARGETARCH": "FROM a\nARG TARGETARCH\nRUN echo $TARGETARCH\n",
    "line 1: FROM with $BUILDPLATFORM": "FROM --platform=${BUILDPLATFORM} a\n",
    "line 2: RUN --device": "FROM a\nONBUILD RUN --device=x true\n",
}


@pytest.mark.parametrize("name", CLASSIC)
def test_the_classic_builder_does_what_it_always_did(name: str) -> None:
    assert buildkit_reason(CLASSIC[name]) == ""


@pytest.mark.parametrize("reason", BUILDKIT)
def test_what_only_buildkit_can_do_is_named_with_its_line(reason: str) -> None:
    assert buildkit_reason(BUILDKIT[reason]) == reason
