"""``marathonctl top``: the first screen that stays, for a terminal over ssh.

Owns its layout and keys.  Facts come from the ledger alone, through the functions that ``status``, ``show`` and ``logs`` use, so that they
cannot disagree; what a person decides goes to the daemon as from any other command.  Must not write to the ledger.
"""
