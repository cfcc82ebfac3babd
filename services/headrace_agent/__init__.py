"""The agent of a node: sends heartbeats to the allocator and carries out the orders in the answers. The runner beside it holds the jobs."""
