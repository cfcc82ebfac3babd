"""Facts about one tree besides its configuration. Updates are computed from these facts."""
