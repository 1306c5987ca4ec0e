"""The probes of ``marathonctl preflight``: thin looks at the engine, the provider, the disk and this host.

Owns what is looked at, how long, and that nothing of it stays.  What an observation means is :mod:`marathond.core.preflight`'s; how rows
look is the command line's.  Records nothing in the ledger; spends no token.
"""
