"""The commands marathond and marathonctl (floor 5): arguments, tables, exit codes.

Reads the ledger read-only and never migrates it; every mutation goes through the daemon's control socket.
"""
