"""Commands about one operation: change it, show its history, and explain why it waits."""
