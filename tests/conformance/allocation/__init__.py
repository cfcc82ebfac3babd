"""Cases of heartbeats and preemption: events in a row on one tree, and what is expected after each."""
