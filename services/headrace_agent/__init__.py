"""agent: the node's side of the heartbeats, and the runner that holds its jobs."""
