"""Attributes of pools and options of trees: one table each, which parsing, help, the reference pages and export use."""
