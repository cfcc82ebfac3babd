"""Preemption observed: the record of each, alarms about them, counts, and what observing pools would lose."""
