"""The command `headrace up`: run the NATS server, the services and the agents of one machine as supervised processes."""
