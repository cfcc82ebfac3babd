"""Structured logs of a process, and the throttle of lines about frequent things."""
