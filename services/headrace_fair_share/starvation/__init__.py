"""Which pools and operations are short of their fair share, and for how long."""
