"""Samples of pools over time, kept and told."""
