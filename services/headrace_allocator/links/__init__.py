"""The allocator's ends of the bus: the ledger, the bucket of nodes, the record of the longest lease."""
