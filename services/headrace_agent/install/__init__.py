"""Runs the agent as systemd units, on hosts that start it at each boot."""
