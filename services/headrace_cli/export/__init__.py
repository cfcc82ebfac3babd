"""The command `headrace export`."""
