"""The fair-share service: the configuration of one pool tree, and the fair share of each of its pools and operations."""
