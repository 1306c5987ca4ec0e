"""Which variables lead programs to a proxy, and those that a container is given on purpose.

Owns the names.  Must not know containers or configurations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
"""What Docker takes for a build's proxies without the Dockerfile declaring them, in any case."""

EXCEPTIONS = frozenset({"no_proxy", "noproxy", "npm_config_noproxy", "npm_config_no_proxy", "global_agent_no_proxy", "yarn_no_proxy"})
"""These only say what does not go through a proxy."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_SCHEMES = r"(?:https?|ftp|all|no|auto|socks[45]?h?|rsync|wss?|gopher)_?proxy"
_TOOLS = r"(?:npm_config|yarn|pip|cargo|bundle|conda|global_agent|cgi|docker)"
_NAME = re.compile(rf"(?:{_TOOLS}_)?{_SCHEMES}|{_TOOLS}_proxy")
_JAVA = re.compile(r"-D(?:https?\.|ftp\.|socks)proxyHost=.", re.IGNORECASE)


def proxies_in(env: Mapping[str, str]) -> dict[str, str]:
    """Those variables that send programs to a proxy or say what does not go there, in any case; a tool's own and Java's options included.

    An empty one turns a proxy off, and is none.
    """
    return {name: value for name, value in env.items() if value.strip() and (_NAME.fullmatch(name.lower()) or _JAVA.search(value))}


def runtime_proxy_env(configured: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``network.runtime_proxy`` for a container with a network; empty when nothing is configured.

    What the container serves to itself, the way to its model included, must not go through a proxy that lies outside: loopback is added
    to NO_PROXY and no_proxy.
    """
    if not configured:
        return {}
    given = next((configured[name] for name in ("NO_PROXY", "no_proxy") if name in configured), "")
    parts = [part.strip() for part in given.split(",") if part.strip()]
    exceptions = ",".join(dict.fromkeys([*parts, *LOOPBACK]))
    return {**configured, "NO_PROXY": exceptions, "no_proxy": exceptions}


def proxy_words(variables: Mapping[str, str]) -> str:
    """``HTTP_PROXY=http://proxy:3128 NO_PROXY=…``, without user and password; for facts and disclosures."""
    return " ".join(f"{name}={without_secret(value)}" for name, value in sorted(variables.items()))


def leads_to_itself(proxy: str) -> bool:
    """Whether a proxy's address is a loopback one, with or without a scheme."""
    try:
        host = urlsplit(proxy if "://" in proxy else f"http://{proxy}").hostname or ""
    except ValueError:
        return False
    return host == "localhost" or host == "::1" or host.startswith("127.")


def without_secret(url: str) -> str:
    """A proxy's address without user and password."""
    head, separator, rest = url.rpartition("@")
    if not separator:
        return url
    scheme, slashes, _ = head.partition("://")
    return f"{scheme}://***@{rest}" if slashes else f"***@{rest}"
