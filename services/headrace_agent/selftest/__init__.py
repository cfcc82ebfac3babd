"""The test of a host by itself: whether jobs are started, kept to their limits and ended here. No server is asked."""
