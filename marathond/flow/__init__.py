"""Scheduler, trial coroutine, sweeper and recovery (floor 3): thin coroutines over the ports, anyio only.

Must not know aiodocker, aiosqlite or the command line.
"""
