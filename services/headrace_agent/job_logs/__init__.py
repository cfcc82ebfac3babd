"""Logs of this host's jobs, read back for users."""
