"""The SQL (floor 2): opening and refusing a ledger, migrations, one typed function per verb, the single writer.

Must not know Docker or tasks' files; everything it decides is a constraint, a trigger or a view.
"""
