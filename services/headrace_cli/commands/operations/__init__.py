"""Commands about one operation: what changes it, what happened to it, and why it waits."""
