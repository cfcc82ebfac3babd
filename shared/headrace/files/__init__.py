"""Files: those that must not be lost, and those that may be endless."""
