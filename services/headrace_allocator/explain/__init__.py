"""Explains to people why an operation waits: the reasons as data, how they are found, and their English text."""
