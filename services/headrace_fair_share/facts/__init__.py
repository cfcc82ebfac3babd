"""The facts of one tree that an update is made from, besides its configuration."""
