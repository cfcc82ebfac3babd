"""What the allocator knows of nodes, operations, allocations and pools; changed by messages only."""
