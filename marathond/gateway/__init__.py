"""The data plane: one listener inside each trial's network namespace, one way out to the model provider, one journal.

A process of its own, so that trials outlive the daemon.  It speaks with the daemon through small versioned files and its journal
(:mod:`~marathond.gateway.files`, :mod:`~marathond.gateway.journal_read`); it knows nothing of the ledger, the flow, the engine or of arms,
and so cannot treat two arms differently.  The provider's real key exists here and nowhere else.
"""
