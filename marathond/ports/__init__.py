"""Protocols (floor 1) that the flow talks to: what each port promises, in its docstrings.

Must not know who implements them.
"""
