"""Decisions of one heartbeat: pure functions over the facts."""
