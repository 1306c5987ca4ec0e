"""A campaign as people look at it: every fact of the first screen from one look at the ledger, for ``status``, ``top`` and the page."""
