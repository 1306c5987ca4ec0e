"""Reports: text, HTML, JSON and CSV, made from values alone (``core/results.py`` and what ``core/compare`` says of them).

Owns layout and words.  Must not know the ledger, the clock or the terminal: the same results give the same bytes.
"""
