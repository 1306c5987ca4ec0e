"""What a verifier's log says that may be the infrastructure's doing, or the agent's own words.

Owns the patterns.  Pure.  Nothing here decides: words alone never void a trial and never doubt a score (fault d06); core/classify.py asks
for evidence from our own side beside them.  What comes from the container itself (its own addresses) is not even a word: a server of the
agent's that refuses connections is its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from marathond.core.text import printable

LINE_MAX = 200
AROUND = 400
"""Characters of a line that are looked at on either side of what was found."""
MATCHES_AT_MOST = 200
"""Of one pattern: a log that says so more often, and each time of the container itself, has been heard."""


class Kind(StrEnum):
    NETWORK = "network"
    PROVIDER = "provider"
    DISK = "disk"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Pattern:
    """``example`` is found; ``counter_example`` looks like it and is not."""

    code: str
    kind: Kind
    regex: re.Pattern[str]
    example: str
    counter_example: str


@dataclass(frozen=True, slots=True)
class Said:
    """``line``: the first one, made harmless."""

    code: str
    kind: Kind
    line: str


def _pattern(code: str, kind: Kind, regex: str, example: str, counter_example: str) -> Pattern:
    return Pattern(code, kind, re.compile(regex, re.IGNORECASE), example, counter_example)


PATTERNS = (
    _pattern(
        "dns",
        Kind.NETWORK,
        r"temporary failure in name resolution|could not resolve (?:host|proxy)|name or service not known|temporary failure resolving"
        r"|getaddrinfo (?:EAI_AGAIN|ENOTFOUND)|dial tcp: lookup \S+|failed to lookup address information",
        "curl: (6) Could not resolve host: static.crates.io",
        "resolver.rs:12: could not resolve type `Host`",
    ),
    _pattern(
        "unreachable",
        Kind.NETWORK,
        r"network is unreachable|no route to host|\bENETUNREACH\b|\bEHOSTUNREACH\b",
        "connect to 151.101.1.63 port 443 failed: Network is unreachable",
        "warning: unreachable statement in src/network.rs",
    ),
    _pattern(
        "refused",
        Kind.NETWORK,
        r"connection refused|\bECONNREFUSED\b",
        "error: failed to connect to proxy.example.org port 3128: Connection refused",
        "curl: (7) Failed to connect to localhost port 8000 after 0 ms: Connection refused",
    ),
    _pattern(
        "reset",
        Kind.NETWORK,
        r"connection reset by peer|\bECONNRESET\b|remote end closed connection without response|connection aborted"
        r"|unexpected EOF while reading",
        "urllib3.exceptions.ProtocolError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        "read tcp 127.0.0.1:49822->127.0.0.1:9000: connection reset by peer",
    ),
    _pattern(
        "timed_out",
        Kind.NETWORK,
        r"connection timed out|connect(?:ion)? timeout|\bETIMEDOUT\b|read timed out|\bConnectTimeout\b|\bReadTimeout\b|i/o timeout",
        "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='pypi.org', port=443): Read timed out.",
        "test_large_upload timed out after 60 s",
    ),
    _pattern(
        "tls",
        Kind.NETWORK,
        r"certificate verify failed|TLS handshake (?:timeout|failed)|\bSSLEOFError\b|SSL_ERROR_SYSCALL"
        r"|EOF occurred in violation of protocol",
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in chain",
        "test_tls_handshake_with_bad_certificate ... FAILED",
    ),
    _pattern(
        "proxy",
        Kind.NETWORK,
        r"proxy authentication required|tunnel connection failed|cannot connect to proxy|\bERR_PROXY_CONNECTION_FAILED\b",
        "OSError: Tunnel connection failed: 407 Proxy Authentication Required",
        "GET /proxy/authentication 404",
    ),
    _pattern(
        "download",
        Kind.NETWORK,
        r"^E: (?:failed to fetch|unable to fetch)|failed to download (?:from|`|file|https?:)|could not fetch url|npm (?:ERR!|error) network"
        r"|spurious network error|no matching distribution found",
        "E: Failed to fetch http://deb.debian.org/debian/pool/main/c/curl/curl_7.88.1-10_amd64.deb",
        "assert error: failed to download invoice.pdf button is missing",
    ),
    _pattern(
        "rate_limited",
        Kind.PROVIDER,
        r"\b429 too many requests|\bRateLimitError\b|rate_limit_(?:error|exceeded)|\binsufficient_quota\b",
        "openai.RateLimitError: Error code: 429 - {'error': {'code': 'rate_limit_exceeded'}}",
        "FAILED tests/test_api.py::test_rate_limit_header - assert '429' in text",
    ),
    _pattern(
        "provider_error",
        Kind.PROVIDER,
        r"\boverloaded_error\b|\bAPIConnectionError\b|\bAPITimeoutError\b|\bInternalServerError: Error code: 5\d\d"
        r"|\b50[234] (?:bad gateway|service (?:temporarily )?unavailable|gateway time-?out)",
        "anthropic.InternalServerError: Error code: 529 - {'type': 'error', 'error': {'type': 'overloaded_error'}}",
        "GET http://localhost:3000/health 503 Service Unavailable",
    ),
    _pattern(
        "provider_auth",
        Kind.PROVIDER,
        r"\bAuthenticationError: Error code: 40[13]|\binvalid_api_key\b|\binvalid x-api-key\b",
        "openai.AuthenticationError: Error code: 401 - {'error': {'code': 'invalid_api_key'}}",
        "AssertionError: login without a token must answer 401 Unauthorized",
    ),
    _pattern(
        "disk_full",
        Kind.DISK,
        r"no space left on device|\bENOSPC\b|disk quota exceeded",
        "error: could not write to target/release/deps: No space left on device (os error 28)",
        "test disk_space_is_reported_as_left ... FAILED",
    ),
    _pattern(
        "out_of_memory",
        Kind.MEMORY,
        r"cannot allocate memory|\bout of memory\b|\bstd::bad_alloc\b|^MemoryError\b|\boom-kill|signal: 9, SIGKILL"
        r"|^.{0,120}: line \d+: +\d+ Killed\b",
        "/tests/test.sh: line 14:   231 Killed                  cargo test --release",
        "test kill_marks_the_job_as_killed ... FAILED",
    ),
)

_MULTILINE = tuple((pattern, re.compile(pattern.regex.pattern, pattern.regex.flags | re.MULTILINE)) for pattern in PATTERNS)
_OWN = re.compile(r"\blocalhost\b|\b127\.\d{1,3}\.\d{1,3}\.\d{1,3}\b|\b0\.0\.0\.0\b|\[::1?\]|(?<![\w:])::1\b", re.IGNORECASE)


def said(text: str, ways: Collection[str] = ()) -> tuple[Said, ...]:
    """The first line for each pattern.  Lines that name the container's own addresses are left out.

    :param text: bounded by the caller.
    :param ways: addresses in the container behind which our own side answers (``127.0.0.1:8792``): their lines are not left out.
    """
    found = []
    for pattern, regex in _MULTILINE:
        for number, match in enumerate(regex.finditer(text)):
            if number >= MATCHES_AT_MOST:
                break
            line = _line(text, match)
            if not _OWN.search(line) or any(way in line for way in ways):
                found.append(Said(pattern.code, pattern.kind, printable(line, LINE_MAX)))
                break
    return tuple(found)


def _line(text: str, match: re.Match[str]) -> str:
    """The line around a match, at most :data:`AROUND` characters on either side."""
    start = max(text.rfind("\n", max(0, match.start() - AROUND), match.start()) + 1, match.start() - AROUND, 0)
    end = text.find("\n", match.end(), match.end() + AROUND)
    return text[start : end if end >= 0 else match.end() + AROUND]
