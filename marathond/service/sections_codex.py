"""The section ``[codex]``: which codex is driven, and where it comes from.

Owns what a valid value is, as :mod:`marathond.service.sections` does for the others.  Must not fetch or read anything.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator

from marathond.service.sections import HostPath, Int, Section, Word, guilty
from marathond.staging import pins


class CodexSection(Section):
    """``[codex]``: the codex that arms drive.  All of it is part of the treatment."""

    # --- staging: what ``marathonctl stage`` puts below state_dir/staged/ ---
    version: Annotated[str, Strict()] = Field(default=pins.DEFAULT_VERSION, description="exact version of codex; at least " + pins.OLDEST)
    folder: HostPath | None = Field(default=None, description="a local tree with bin/codex of that version, instead of the npm package")
    integrity: Word | None = Field(
        default_factory=lambda data: None if data.get("folder") else pins.KNOWN.get(data.get("version", "")),
        description="hash of the npm package, sha512-…; with folder optional, then the tree's own sha256-…",
    )

    # --- what every codex arm of the campaign is given alike ---
    model: Word | None = Field(default=None, description="model slug; required when an arm of kind codex takes part")
    effort: Literal["minimal", "low", "medium", "high", "xhigh"] = Field(default="high", description="reasoning effort")
    infra_retries: Int = Field(default=3, ge=0, le=100, description="how often a turn that the infrastructure failed is taken up again")
    request_max_retries: Int = Field(default=8, ge=0, le=100, description="codex's own retries of a request")
    stream_max_retries: Int = Field(default=8, ge=0, le=100, description="codex's own retries of a stream that broke off")
    stream_idle_timeout_ms: Int = Field(default=300_000, ge=1000, le=3_600_000, description="codex's patience with a silent stream")

    @model_validator(mode="after")
    def _source_is_pinned(self) -> CodexSection:
        if problem := pins.version_problem(self.version):
            raise guilty("version", problem)
        if self.integrity is None:
            if self.folder is None:
                raise guilty("integrity", f"required for {self.version}: dist.integrity of @openai/codex@{self.version}-linux-x64")
        elif problem := pins.integrity_problem(self.integrity, from_folder=self.folder is not None):
            raise guilty("integrity", problem)
        return self

    def wanted(self) -> pins.Wanted:
        """What the staging room is asked for."""
        return pins.Wanted("codex", self.version, self.integrity, self.folder)
