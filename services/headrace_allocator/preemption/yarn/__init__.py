"""Preemption by YARN's rules: who may lose what, and the search for it, which runs beside the heartbeats."""
