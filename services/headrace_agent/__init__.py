"""The agent of a node: sends the heartbeats and obeys the answers. Its runner holds the jobs."""
