"""The agent's side of the connection to the runner of its host."""
