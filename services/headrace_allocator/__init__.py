"""The allocator decides on each node's heartbeat what runs on the node. It saves no state: after a start it rebuilds it from messages."""
