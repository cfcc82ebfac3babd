"""Replays of what the log recorded: the engines of the services in simulated time. A program, and no service."""
