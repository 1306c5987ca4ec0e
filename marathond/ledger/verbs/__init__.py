"""The ledger's verbs: plain functions on a ``sqlite3.Connection``, each one whole change or one whole look.

Every verb runs inside a transaction that the caller began (see :mod:`marathond.ledger.writer`), takes the time as an argument, and lets
the schema refuse what is illegal: the writer turns that into :class:`marathond.ledger.errors.RuleBroken`.  SQL stands beside the verb
that uses it.  Connections come from :mod:`marathond.ledger.connect` (rows by name).  Must not await, print, or ask a clock.
"""
