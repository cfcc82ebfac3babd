"""The commands `run`, `op …` and `events`, with what they ask and the tables and pages that they print."""
