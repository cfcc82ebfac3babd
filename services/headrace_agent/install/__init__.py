"""The agent as systemd units, for hosts that run it from boot on."""
