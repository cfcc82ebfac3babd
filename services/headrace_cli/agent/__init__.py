"""The command `headrace agent`: make this host a node."""
