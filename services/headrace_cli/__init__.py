"""The command `headrace`, including `headrace up`, which runs all of Headrace on one machine."""
