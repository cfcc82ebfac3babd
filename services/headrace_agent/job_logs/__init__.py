"""Logs of jobs of this host, read back for people."""
