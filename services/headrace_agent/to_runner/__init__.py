"""The agent's side of the conversation with the runner of its host."""
