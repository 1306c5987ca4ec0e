"""Which subnets are free: pure arithmetic on IPv4 ranges (stdlib only).

Owns two questions: which canonical subnets of a configured range may be handed out (``explicit`` mode), and how many networks the
engine's own pools still have (``auto`` mode).  Must not know Docker, SQL or how the host was asked: everything arrives as CIDR text.

Facts (measured on Docker 20.10.24 and 28.5.2): an entry of the engine's pool is taken by every network, interface, route or resolver
that overlaps it; the default route is no obstacle, but OpenVPN's pair 0.0.0.0/1 + 128.0.0.0/1 takes every entry.  An explicit subnet
is not checked by Docker against interfaces and routes, so that is done here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

SMALLEST_PREFIX = 29
"""A /30 leaves one address beside the gateway and /31 is refused by Docker; /29 is the smallest that is useful."""

MAX_POOL_ENTRIES = 65536
"""Bound on what :func:`auto_capacity` counts; larger pools are cut there (the count is a limit nobody reaches)."""

BUILTIN_POOLS: tuple[tuple[str, int], ...] = (*((f"172.{second}.0.0/16", 16) for second in range(17, 32)), ("192.168.0.0/16", 20))
"""Docker's pools when none are configured: 15 x /16 and 16 x /20, 31 entries, one of which docker0 takes."""


@dataclass(frozen=True, slots=True)
class Occupied:
    """Something of the host that uses addresses.  ``cidr`` is CIDR text or one address; ``what`` is for a message (``route via tun0``)."""

    cidr: str
    what: str


@dataclass(frozen=True, slots=True)
class NetworkSubnets:
    """One network of the engine.  ``ours``: it carries this ledger's label."""

    id: str
    ours: bool
    subnets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AutoPool:
    """The engine's own pools counted in entries (= networks); ``free`` is what remains, and the five always add up."""

    total: int
    taken_by_ours: int
    taken_by_foreign: int
    taken_by_host: int
    free: int


def canonical(cidr: str) -> IPv4Network:
    """Parse CIDR text or an address, host bits dropped.  Raises ValueError for anything but IPv4."""
    return IPv4Network(cidr, strict=False)


def check_range(range_: str, prefix: int) -> IPv4Network:
    """The configured range, or a ValueError whose text says what was expected.

    :param prefix: length of the subnets to hand out, within the range's own length and :data:`SMALLEST_PREFIX`.
    """
    try:
        net = IPv4Network(range_, strict=True)
    except ValueError as exc:
        raise ValueError(f"{range_!r} must be a canonical IPv4 range such as 198.19.0.0/16 ({exc})") from None
    if not net.prefixlen <= prefix <= SMALLEST_PREFIX:
        raise ValueError(f"subnet prefix /{prefix} must be between the range's own /{net.prefixlen} and /{SMALLEST_PREFIX}")
    return net


def _span(net: IPv4Network) -> tuple[int, int]:
    """First and last address as integers."""
    first = int(net.network_address)
    return first, first + net.num_addresses - 1


def _says_internet(net: IPv4Network) -> bool:
    """A route so wide that it only means "the Internet": the default route, or half of it as VPN clients split it.

    An explicit subnet is more specific than these and works beside them; Docker itself does not look.
    """
    return net.prefixlen <= 1


def _merged(nets: Iterable[IPv4Network]) -> tuple[list[int], list[int]]:
    """Sorted disjoint intervals (starts, ends) that cover ``nets``."""
    starts: list[int] = []
    ends: list[int] = []
    for first, last in sorted(map(_span, nets)):
        if ends and first <= ends[-1] + 1:
            ends[-1] = max(ends[-1], last)
        else:
            starts.append(first)
            ends.append(last)
    return starts, ends


def free_subnets(
    range_: str,
    prefix: int,
    *,
    leased: Iterable[str],
    quarantined: Iterable[str],
    occupied: Iterable[str],
) -> Iterator[str]:
    """Canonical subnets of ``range_`` that overlap nothing, each once, in order.

    :param prefix: length of the subnets, at most :data:`SMALLEST_PREFIX`.
    :param occupied: routes, interfaces, resolvers and other networks; default routes (and their VPN halves) do not count.
    :raises ValueError: at the call, not at the first item, for a bad range, prefix or address.
    """
    net = check_range(range_, prefix)
    blockers = [canonical(text) for group in (leased, quarantined) for text in group]
    blockers += [block for block in map(canonical, occupied) if not _says_internet(block)]
    return _walk(net, prefix, _merged(block for block in blockers if block.overlaps(net)))


def _walk(net: IPv4Network, prefix: int, blocked: tuple[list[int], list[int]]) -> Iterator[str]:
    starts, ends = blocked
    size = 1 << (32 - prefix)
    base = int(net.network_address)
    for first in range(base, base + net.num_addresses, size):
        at = bisect_right(starts, first + size - 1) - 1  # the last interval that begins before this slot ends
        if at < 0 or ends[at] < first:
            yield str(IPv4Network((first, prefix)))


def range_conflicts(range_: str, occupied: Sequence[Occupied], *, own: Iterable[str] = ()) -> list[Occupied]:
    """What of the host lies across the configured range, for a message that names it.

    :param own: subnets of the engine's networks: their bridges and routes are on the host, too, and are no conflict.
    :raises ValueError: for a range or an address that is not IPv4.
    """
    net = canonical(range_)
    mine = [canonical(text) for text in own]
    found = []
    for item in occupied:
        block = canonical(item.cidr)
        if block.overlaps(net) and not _says_internet(block) and not any(block.subnet_of(known) for known in mine):
            found.append(item)
    return found


def pool_entries(pools: Sequence[tuple[str, int]]) -> list[IPv4Network]:
    """The subnets an engine would hand out, in order, without repetition.

    :param pools: (base, size) as in ``default-address-pools``; empty means the engine's built-in ones.  IPv6 bases are left out.
    """
    entries: dict[IPv4Network, None] = {}
    for base, size in pools or BUILTIN_POOLS:
        if ":" in base:
            continue
        for entry in canonical(base).subnets(new_prefix=size):
            if len(entries) >= MAX_POOL_ENTRIES:
                return list(entries)
            entries[entry] = None
    return list(entries)


def auto_capacity(pools: Sequence[tuple[str, int]], networks: Sequence[NetworkSubnets], host: Sequence[Occupied]) -> AutoPool:
    """Count the engine's own pools: who holds each entry, ours before other networks before the host.

    A bridge of ours shows on the host as an interface and a route as well; that order counts it once, as ours.
    :param host: from the host's routes, interfaces and resolvers.  Only 0.0.0.0/0 is no obstacle (measured: 0/1 + 128/1 leave nothing).
    """
    ours = _merged(canonical(text) for net in networks if net.ours for text in net.subnets if ":" not in text)
    foreign = _merged(canonical(text) for net in networks if not net.ours for text in net.subnets if ":" not in text)
    on_host = _merged(block for block in (canonical(item.cidr) for item in host) if block.prefixlen > 0)
    counts = [0, 0, 0, 0]
    entries = pool_entries(pools)
    for entry in entries:
        holder = next((who for who, spans in enumerate((ours, foreign, on_host)) if _touches(spans, entry)), 3)
        counts[holder] += 1
    return AutoPool(len(entries), counts[0], counts[1], counts[2], counts[3])


def _touches(spans: tuple[list[int], list[int]], net: IPv4Network) -> bool:
    starts, ends = spans
    first, last = _span(net)
    at = bisect_right(starts, last) - 1
    return at >= 0 and ends[at] >= first
