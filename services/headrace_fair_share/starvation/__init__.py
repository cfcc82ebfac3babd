"""Starvation: the pools and operations that have less than their fair share, and for how long."""
