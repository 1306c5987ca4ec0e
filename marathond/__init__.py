"""marathond: one daemon, one ledger, fair trials.  See ARCHITECTURE.md for the rooms and who may import whom."""

__version__ = "0.1.0"
