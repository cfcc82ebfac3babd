"""Starvation: the pools and operations that are short of their fair share, and for how long."""
