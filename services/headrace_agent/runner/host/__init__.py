"""The port through which the runner uses the host, and its implementation."""
