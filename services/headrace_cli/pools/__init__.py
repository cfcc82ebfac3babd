"""Pools as people write them: options, `key=value` pairs, files, and the fields that can be read."""
