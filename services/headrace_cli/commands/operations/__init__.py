"""The commands `run`, `op …` and `events`, with the requests that they send and the tables and pages that they print."""
