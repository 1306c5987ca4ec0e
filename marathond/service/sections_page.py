"""``[page]``: the live page, off unless somebody says where.

Owns what a valid place is; the words are :mod:`marathond.service.page.address`'.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from marathond.service.page import address
from marathond.service.sections import Section, Word


def _listen(value: str) -> str:
    try:
        address.parse(value)
    except ValueError as error:
        raise PydanticCustomError("wrong", "{expected}", {"expected": str(error)}) from error
    return value


class PageSection(Section):
    """``[page]``: read-only, for a browser and a monitor.  Fixed until the daemon restarts."""

    listen: Annotated[Word, AfterValidator(_listen)] | None = Field(
        default=None, description="where the live page is served: loopback with a port, or unix:/path; none: it is not"
    )
