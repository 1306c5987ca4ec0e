"""What `make demo` needs on a fresh machine (floor 5): an engine, a base image, six sample tasks, a run.

Nothing else in the package imports this room.
"""
