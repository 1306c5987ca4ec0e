"""Composition root (floor 4): settings, the control socket, systemd notification, the daemon's main.

The only room that knows every adapter by name.
"""
