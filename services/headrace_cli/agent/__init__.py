"""`headrace agent`: this host as a node."""
