"""Files of the runner: what outlives it, the logs of jobs, and how room is made for new ones."""
