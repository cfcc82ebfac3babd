"""`headrace up`: NATS server, services and agents of one machine as supervised processes."""
