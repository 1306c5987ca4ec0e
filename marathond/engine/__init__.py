"""The Engine port over aiodocker, and what the host says about networks, memory and disk (floor 2).

Must not know the ledger: it is told names, labels and subnets, and reports what it saw.
"""
