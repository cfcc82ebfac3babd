"""The allocator decides on each node's heartbeat what runs on the node. Its state is rebuilt from messages after a start."""
