"""A pool over time: usage, demand, guarantees and savings, in figures, in characters and in files."""
