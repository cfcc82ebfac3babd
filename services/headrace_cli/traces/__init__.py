"""Traces as people see them: where the time of a start went, and of a heartbeat."""
