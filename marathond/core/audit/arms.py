"""One arm out of line: in latency, refused requests, deaths, endings, silence, and in what its treatment makes it do.  Pure."""

from __future__ import annotations

from marathond.core.audit.rule import Rule

RULES: tuple[Rule, ...] = ()
