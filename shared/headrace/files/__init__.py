"""Files: writing files that must not be lost, and reading files that may be endless."""
