"""The allocator decides on each node's heartbeat what runs there. Nothing of it must be saved."""
