"""The allocations of a node, their states, and the ends of jobs that are not recorded yet."""
