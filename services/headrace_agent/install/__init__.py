"""The agent as units of systemd, for hosts that are to run it from their start on."""
