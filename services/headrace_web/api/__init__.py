"""The HTTP API: a table of endpoints, and the code that turns requests into calls of the client and answers into JSON."""
