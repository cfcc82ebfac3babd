"""Facts about nodes, operations, allocations and pools, changed by messages only."""
