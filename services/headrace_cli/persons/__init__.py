"""`headrace login`, `logout`, `whoami` and `user`: people, and the clusters that let them in."""
