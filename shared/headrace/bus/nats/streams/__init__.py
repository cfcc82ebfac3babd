"""JetStream streams and what is built on them: buckets with their mirrors, the log, records."""
