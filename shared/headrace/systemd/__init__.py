"""Systemd units of this host: their text, their files, and requests by `systemctl`."""
