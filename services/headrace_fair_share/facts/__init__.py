"""What the service knows about one tree besides its configuration. Updates are computed from these facts."""
