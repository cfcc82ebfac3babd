"""The bus over NATS: one connection, requests of JetStream, and the buckets, logs and records that are made of them."""

from headrace.bus.nats.without_jetstream import import_client

import_client()
