"""The bus over NATS: one connection, JetStream requests, and the buckets, logs and records built on them."""

from headrace.bus.nats.without_jetstream import import_client

import_client()
