"""allocator: what runs where, decided on each node's heartbeat; usage of every operation; nothing that must be saved."""
