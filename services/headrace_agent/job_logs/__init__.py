"""Reads the logs of this host's jobs for users."""
