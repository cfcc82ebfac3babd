"""Publications of the allocator: usage for fair_share, and decisions for subscribers."""
