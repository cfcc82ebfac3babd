"""The command `headrace notify`."""
