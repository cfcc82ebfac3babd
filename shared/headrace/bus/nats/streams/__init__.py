"""Streams of JetStream and what is kept in them: buckets with their mirrors, the log, records."""
