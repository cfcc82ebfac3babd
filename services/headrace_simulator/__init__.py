"""Replays of what the log recorded: the engines of the services run in simulated time. This is a program, not a service."""
