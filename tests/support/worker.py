"""What is this test process's own when several run side by side: networks and ports of the host, so that no two ever want the same.

The default range 198.19.0.0/16 is cut in eight parts, one for each pytest worker; the last is for tests that name a subnet by hand.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from ipaddress import IPv4Network

from marathond.core.subnets import free_subnets

AT_MOST = 7
FIRST_PORT, PORTS = 15_000, 2_000
"""Below those that the kernel gives to whoever connects: nobody takes one of them by chance."""


def number() -> int:
    """0 for the first worker, and where there are none."""
    found = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    assert found < AT_MOST, f"worker {found}: there are networks and ports for {AT_MOST}"
    return found


def network_range() -> str:
    """CIDR text."""
    return str(list(IPv4Network("198.19.0.0/16").subnets(prefixlen_diff=3))[number()])


def any_subnet(taken: Iterable[str]) -> str:
    """A /28 of the own part that overlaps nothing of ``taken``; by chance, for another run of the tests may use the same engine."""
    return secrets.choice(list(free_subnets(network_range(), 28, leased=[], quarantined=[], occupied=taken)))


def any_port() -> int:
    """Of this worker, whether free or not."""
    return FIRST_PORT + number() * PORTS + secrets.randbelow(PORTS)
