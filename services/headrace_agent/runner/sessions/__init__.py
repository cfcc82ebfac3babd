"""Sessions of people with jobs that have a terminal, and with commands beside jobs."""
