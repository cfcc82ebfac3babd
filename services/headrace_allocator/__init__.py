"""The allocator decides on each node's heartbeat what runs on the node. None of its state must be saved."""
