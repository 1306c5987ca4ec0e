"""The live page: what ``status`` says, in a browser, and what a monitor asks for; read-only, in a process of its own.

``address`` what ``[page] listen`` may be · ``keeper`` one look for all viewers · ``board``, ``trial`` the words of the two screens ·
``render`` templates · ``metrics`` samples · ``health`` livez and readyz · ``server`` HTTP and its bounds · ``breaks`` what breaks ·
``child`` the process · ``life`` how the daemon keeps it.  Only :mod:`.life` writes to the ledger; a daemon loads
``address``, ``place``, ``breaks`` and ``life``, no more.
"""
