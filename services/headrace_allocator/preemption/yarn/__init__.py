"""Preemption by YARN's rules: which operations may lose allocations, and the search for victims, which runs outside of heartbeats."""
