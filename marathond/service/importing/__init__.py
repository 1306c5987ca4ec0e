"""Results that were measured elsewhere: folders of the scripts before this project, Harbor's job folders, tables of trials.

Owns reading them without touching them, what is taken and what is listed, and which trial counts (the first valid one by its start, never
the best: fault a09).  Must not know terminals; the ledger's side is :mod:`marathond.ledger.verbs.imports`.
"""
