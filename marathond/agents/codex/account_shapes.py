"""The base of all that the receipt reads from a log: fields that must be there and of their kind (fault e03), others are passed over."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Detail(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
