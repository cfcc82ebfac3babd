"""Modules for `headrace export` and `headrace notify`: positions that survive kills, and deliveries that are retried until they succeed."""
