"""Processes of jobs: their start, their limits, their end, and what a killed runner left of them."""
