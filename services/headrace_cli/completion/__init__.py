"""Completion of `headrace` at a Tab: commands, options, words, and names that a running Headrace knows."""
