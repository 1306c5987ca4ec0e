"""Properties of the subnet arithmetic: never overlaps, always canonical, exhausts exactly."""

from __future__ import annotations

from ipaddress import IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.subnets import (
    AutoPool,
    NetworkSubnets,
    Occupied,
    auto_capacity,
    free_subnets,
    pool_entries,
    range_conflicts,
)

RANGE = "198.19.0.0/20"
SLOTS = list(IPv4Network(RANGE).subnets(new_prefix=28))
ROOM = IPv4Network("198.18.0.0/15")


@st.composite
def blocks(draw: st.DrawFn) -> str:
    """CIDR text in and around the range: as small as one address, as wide as the range itself, host bits set at will."""
    address = int(ROOM.network_address) + draw(st.integers(0, ROOM.num_addresses - 1))
    return f"{IPv4Network((address, 32)).network_address}/{draw(st.integers(18, 32))}"


def _free(**kwargs: object) -> list[str]:
    return list(free_subnets(RANGE, 28, **{"leased": [], "quarantined": [], "occupied": [], **kwargs}))  # type: ignore[arg-type]


@settings(deadline=None)  # a deadline would measure the machine
@given(st.lists(blocks(), max_size=8), st.lists(blocks(), max_size=8), st.lists(blocks(), max_size=8))
def test_free_subnets_are_exactly_the_canonical_ones_that_overlap_nothing(
    leased: list[str], quarantined: list[str], occupied: list[str]
) -> None:
    got = _free(leased=leased, quarantined=quarantined, occupied=occupied)
    taken = [IPv4Network(text, strict=False) for text in (*leased, *quarantined, *occupied)]
    assert got == [str(slot) for slot in SLOTS if not any(slot.overlaps(block) for block in taken)]


def test_leasing_one_after_the_other_exhausts_the_range_exactly() -> None:
    leased: list[str] = []
    while subnet := next(free_subnets("198.19.0.0/24", 28, leased=leased, quarantined=[], occupied=[]), None):
        leased.append(subnet)
        assert len(leased) <= 16
    assert sorted(leased) == sorted(map(str, IPv4Network("198.19.0.0/24").subnets(new_prefix=28)))


def test_default_routes_and_their_vpn_halves_leave_the_explicit_range_usable() -> None:
    assert len(_free(occupied=["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1"])) == 256
    assert _free(occupied=["198.0.0.0/8"]) == []


@pytest.mark.parametrize(
    ("range_", "prefix", "word"),
    [("198.19.0.1/16", 28, "canonical"), ("198.19.0.0/16", 30, "/29"), ("198.19.0.0/28", 24, "/28"), ("fd00::/64", 28, "IPv4")],
)
def test_a_bad_range_is_refused_at_the_call_with_what_was_expected(range_: str, prefix: int, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        free_subnets(range_, prefix, leased=[], quarantined=[], occupied=[])


def test_conflicts_name_the_host_and_leave_our_own_bridges_out() -> None:
    vpn = Occupied("198.18.0.0/15", "route dev tun0")
    bridge = Occupied("198.19.0.1/28", "interface br-1")
    other = Occupied("10.0.0.0/8", "route dev eth1")
    default = Occupied("0.0.0.0/0", "default route")
    assert range_conflicts("198.19.0.0/16", [vpn, bridge, other, default], own=["198.19.0.0/28"]) == [vpn]
    assert range_conflicts("198.19.0.0/16", [bridge]) == [bridge]


DOCKER0 = NetworkSubnets("bridge", False, ("172.17.0.0/16",))


@pytest.mark.parametrize(
    ("networks", "host", "free"),
    [
        ([DOCKER0], [], 30),
        ([DOCKER0, NetworkSubnets("a", True, ("172.18.0.0/16",))], [Occupied("172.18.0.1/16", "interface br-a")], 29),
        ([DOCKER0, NetworkSubnets("a", False, ("172.18.0.0/15",))], [], 28),
        ([DOCKER0, NetworkSubnets("macvlan", False, ("10.1.0.0/24",)), NetworkSubnets("host", False, ())], [], 30),
        ([DOCKER0, NetworkSubnets("six", False, ("fd00::/64",))], [], 30),
        ([DOCKER0], [Occupied("192.168.16.0/20", "route dev eth1")], 29),
        ([DOCKER0], [Occupied("172.16.0.0/12", "route dev wg0")], 16),
        ([DOCKER0], [Occupied("0.0.0.0/0", "default route")], 30),
        ([DOCKER0], [Occupied("0.0.0.0/1", "route dev tun0"), Occupied("128.0.0.0/1", "route dev tun0")], 0),
        ([DOCKER0], [Occupied("192.168.1.53", "resolver")], 29),
    ],
)
def test_b02_the_free_budget_follows_networks_and_routes(networks: list[NetworkSubnets], host: list[Occupied], free: int) -> None:
    assert auto_capacity([], networks, host).free == free


@settings(deadline=None)  # a deadline would measure the machine
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(pool_entries([]))), max_size=20),
    st.lists(st.sampled_from(pool_entries([])), max_size=10),
)
def test_every_entry_has_exactly_one_holder(nets: list[tuple[bool, IPv4Network]], routes: list[IPv4Network]) -> None:
    networks = [NetworkSubnets(str(n), ours, (str(net),)) for n, (ours, net) in enumerate(nets)]
    pool = auto_capacity([], networks, [Occupied(str(net), "route") for net in routes])
    ours = {net for mine, net in nets if mine}
    foreign = {net for mine, net in nets if not mine} - ours
    assert pool == AutoPool(31, len(ours), len(foreign), len(set(routes) - ours - foreign), pool.free)
    assert pool.total == pool.taken_by_ours + pool.taken_by_foreign + pool.taken_by_host + pool.free


def test_configured_pools_replace_the_built_in_ones() -> None:
    assert auto_capacity([("10.99.0.0/24", 26), ("fd00::/48", 64)], [], []).total == 4
