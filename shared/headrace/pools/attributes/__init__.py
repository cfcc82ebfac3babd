"""Attributes of pools and options of trees: one table each, from which reading, help, the reference and export are made."""
