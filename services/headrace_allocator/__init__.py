"""The allocator decides on each node's heartbeat what runs on the node. After a start, the allocator rebuilds its state from messages."""
