"""News of the allocator: usage for fair_share, and decisions for whoever follows them."""
