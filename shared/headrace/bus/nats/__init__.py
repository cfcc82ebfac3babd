"""The bus over NATS: one connection, requests of JetStream, and the buckets, logs and records that are made of them."""
