"""The commands of `headrace`, with one module for each noun."""
