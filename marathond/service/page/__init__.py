"""The live page: what ``status`` says, in a browser, and what a monitor asks for; read-only, in a thread of its own.

``address`` what ``[page] listen`` may be · ``keeper`` one look for all viewers · ``board``, ``trial`` the words of the two screens ·
``render`` templates · ``metrics`` samples · ``health`` livez and readyz · ``server`` HTTP and its bounds · ``life`` the thread.  Nothing
here may write to the ledger, and only :mod:`.address` is loaded where no page is wanted.
"""
