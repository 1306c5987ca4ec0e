"""Images: looked up, pulled, named, built with the classic builder or handed on to BuildKit.

Owns the two progress streams and what their errors mean.  Must not know tasks or their digests, nor which builder an image needs.

Facts: aiodocker's ``images.build`` lacks ``networkmode``, the raw query has it on 20.10 and 28.5; a failed step is an ``error`` line in an
answer of status 200.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from marathond.core.errors import EngineError, NotFound
from marathond.engine.buildkit import build as buildkit_build
from marathond.engine.client import TAR, BodySource, EngineClient, json_lines
from marathond.engine.decode import image
from marathond.engine.errors import answer_error
from marathond.engine.trees import context_tar
from marathond.ports.engine import ImageInfo

LAST_LINES = 20
"""Lines of a build's output that go into its error."""

LOG_CHUNK_MAX = 1 << 16
"""Longest piece of build output handed to the log at once."""

_UNKNOWN_TEXTS = ("manifest unknown", "not found: manifest", "repository does not exist", "no such image", "pull access denied")


def split_ref(ref: str) -> tuple[str, str]:
    """(name, tag or digest) of an image reference; the tag defaults to ``latest``.  A port is no tag."""
    if "@" in ref:
        name, _, digest = ref.partition("@")
        return name, digest
    name, colon, tag = ref.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (ref, "latest")


def line_text(raw: Mapping[str, Any]) -> str:
    """The text of one line of a build or pull stream; empty when it has none."""
    if "stream" in raw:
        return str(raw["stream"])
    if "error" in raw:
        return f"{raw['error']}\n"
    if "status" in raw:
        return " ".join(str(raw[key]) for key in ("id", "status", "progress") if raw.get(key)) + "\n"
    return ""


def stream_error(call: str, text: str) -> EngineError:
    """An ``error`` line of a progress stream."""
    if call == "image.pull" and any(known in text.lower() for known in _UNKNOWN_TEXTS):
        return NotFound(call, 404, text)
    return answer_error(call, 0, text)


class Images:
    """The image half of :class:`~marathond.engine.docker.DockerEngine`."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client

    async def inspect(self, ref: str) -> ImageInfo | None:
        """By tag, id or digest."""
        try:
            return image(await self._client.request("image.inspect", "GET", f"images/{ref}/json"))
        except NotFound:
            return None

    async def remove(self, ref: str) -> None:
        try:
            await self._client.request("image.remove", "DELETE", f"images/{ref}", params={"force": "1"})
        except NotFound:
            return

    async def _required(self, call: str, ref: str) -> ImageInfo:
        found = await self.inspect(ref)
        if found is None:
            raise EngineError(call, 0, f"image {ref} is not there after the engine said it was done")
        return found

    async def pull(self, ref: str, *, timeout_s: float) -> ImageInfo:
        """See the port.  Sends no credentials: private registries are out of scope."""
        name, tag = split_ref(ref)
        with self._client.guard("image.pull", timeout_s, reads_only=False):
            async with self._client.stream("POST", "images/create", params={"fromImage": name, "tag": tag}) as response:
                async for raw in json_lines("image.pull", response):
                    if "error" in raw:
                        raise stream_error("image.pull", str(raw["error"]))
            return await self._required("image.pull", ref)

    async def build(
        self,
        context: Path,
        *,
        tag: str | None,
        labels: Mapping[str, str],
        build_args: Mapping[str, str],
        network: str | None,
        timeout_s: float,
        log: Callable[[bytes], Awaitable[None]],
        buildkit: bool,
    ) -> ImageInfo:
        """See the port.  The name is given only to a finished image."""
        if not await anyio.Path(context / "Dockerfile").is_file():
            raise EngineError("image.build", 0, f"{context}: no Dockerfile")
        build = partial(buildkit_build, self._client.url) if buildkit else self._classic
        built = await build(context, labels=labels, build_args=build_args, network=network, timeout_s=timeout_s, log=log)
        if tag is not None:
            await self.tag(built, tag)
        return await self._required("image.build", built)

    async def tag(self, image_id: str, ref: str) -> None:
        """See the port."""
        name, tag = split_ref(ref)
        await self._client.request("image.tag", "POST", f"images/{image_id}/tag", params={"repo": name, "tag": tag})

    async def _classic(
        self,
        context: Path,
        *,
        labels: Mapping[str, str],
        build_args: Mapping[str, str],
        network: str | None,
        timeout_s: float,
        log: Callable[[bytes], Awaitable[None]],
    ) -> str:
        """The image's id.  Intermediate containers are always removed; a build whose caller goes away is stopped by the engine."""
        params = {
            "dockerfile": "Dockerfile",
            "labels": json.dumps(dict(labels)),
            "buildargs": json.dumps(dict(build_args)),
            "rm": "1",
            "forcerm": "1",
        }
        if network is not None:
            params["networkmode"] = network
        source = BodySource(context_tar(context), lambda: None)
        with self._client.guard("image.build", timeout_s, reads_only=False), source.blame("image.build"):
            async with self._client.stream("POST", "build", params=params, headers=TAR, data=source.read()) as response:
                built = await self._follow(json_lines("image.build", response), log)
        if not built:
            raise EngineError("image.build", 0, "the engine ended the build without naming its image")
        return built

    async def _follow(self, lines: Any, log: Callable[[bytes], Awaitable[None]]) -> str:
        """Pass a build's output on; returns the image id the builder announced."""
        last: deque[str] = deque(maxlen=LAST_LINES)
        built = ""
        async for raw in lines:
            text = line_text(raw)
            if text:
                last.extend(line for line in text.splitlines() if line.strip())
                data = text.encode("utf-8", "replace")
                for at in range(0, len(data), LOG_CHUNK_MAX):
                    await log(data[at : at + LOG_CHUNK_MAX])
            if "error" in raw:
                raise EngineError("image.build", 0, "\n".join(last))
            if isinstance(raw.get("aux"), dict) and "ID" in raw["aux"]:
                built = str(raw["aux"]["ID"])
        return built
