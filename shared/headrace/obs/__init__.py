"""Observability of a process: structured logs, metrics, health and traces."""
