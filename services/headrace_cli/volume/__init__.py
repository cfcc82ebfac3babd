"""A pool over time: what it used, wanted and was guaranteed, and what it had saved; in figures, characters and files."""
