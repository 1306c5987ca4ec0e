"""Programs for containers, fetched whole: one read-only tree per package and version below ``state_dir/staged/``.

Must not know campaigns, arms, containers or the configuration file.
"""
