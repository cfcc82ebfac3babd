"""Gangs: operations whose jobs start together or not at all."""
