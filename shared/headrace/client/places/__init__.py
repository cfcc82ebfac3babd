"""The servers that a person's commands may connect to, and the files that hold their addresses and credentials."""
