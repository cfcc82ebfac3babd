"""The command `headrace cluster`: make credentials and settings for services in containers or on hosts."""
