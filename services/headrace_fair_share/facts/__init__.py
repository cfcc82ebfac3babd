"""Facts about one tree other than its configuration. Updates are computed from these facts and the configuration."""
