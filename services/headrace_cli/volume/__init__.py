"""A pool over time: usage, demand, guarantees and savings, in figures, characters and files."""
