"""Harbor task directories in, Harbor-compatible artifacts out (floor 2).

Must not know the ledger, the engine or which arm a trial belongs to when it reads a task or a score.
"""
