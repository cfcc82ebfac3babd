"""Nodes: how they are enrolled, how hosts join by tokens, and how they are shut out."""
