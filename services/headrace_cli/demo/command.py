"""`headrace demo`."""


def demo() -> int:
    """Three pools."""
    return 0
