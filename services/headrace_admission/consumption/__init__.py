"""Consumption of finished runs: which facts follow from the log, the records that keep them, and their bucket."""
