"""Pure decisions (floor 0): values in, values out.

Owns the model, the trial's life cycle, planning, subnet arithmetic, classification and score reading.
Must not know Docker, SQLite, asyncio, files or clocks; imports the standard library only.
"""
