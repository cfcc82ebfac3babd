"""The log of events and the checkpoints that shorten it."""
