"""Checks of the installation: the extras of the package, and the operating system."""
