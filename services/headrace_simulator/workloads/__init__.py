"""Readers of recorded workloads of other schedulers."""
