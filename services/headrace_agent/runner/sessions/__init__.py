"""Sessions of people with the terminals of jobs, and with commands beside jobs."""
