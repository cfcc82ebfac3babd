"""Checks of decisions while the allocator works."""
