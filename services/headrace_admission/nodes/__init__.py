"""Nodes: how nodes are enrolled, how hosts join by tokens, and how nodes are shut out."""
