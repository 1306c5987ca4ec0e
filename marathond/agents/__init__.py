"""What an arm does inside a container (floor 2): arms as data, the oracle, nop and command agents.

Must not know the ledger or the other arms.
"""
