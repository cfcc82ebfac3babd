"""The port to the host, and its real end."""
