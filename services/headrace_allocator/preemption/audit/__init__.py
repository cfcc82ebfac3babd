"""The audit of preemption: a record of every preemption, alarms, counts, and what pools that only observe preemption would lose."""
