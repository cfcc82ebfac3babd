"""Traces for people: where the time of a start or of a heartbeat went."""
