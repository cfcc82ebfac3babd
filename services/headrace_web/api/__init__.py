"""The HTTP API: a table of endpoints, and what turns requests into calls of the client and answers into JSON."""
