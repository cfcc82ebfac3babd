"""The commands `headrace login`, `logout`, `whoami` and `user`: the users of a cluster, and the clusters of a user."""
