"""The command `headrace`, and `headrace up`, which runs everything on one machine."""
