"""Pools as people write and read them: options, `key=value` pairs, files, and fields."""
