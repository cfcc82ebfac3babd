"""The command `headrace demo`: the whole system at work by itself, for a minute."""
