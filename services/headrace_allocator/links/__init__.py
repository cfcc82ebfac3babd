"""The allocator's connections over the bus: to the ledger, to the bucket of nodes, and to the record of the longest lease."""
