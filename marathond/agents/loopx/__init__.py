"""LoopX beside codex: its profile in the container, its set-up, its gates, its answers.

Must not know turns, deadlines, scores or the ledger.  How its arms are driven is codex's driver (agents/codex/drive.py).
"""
