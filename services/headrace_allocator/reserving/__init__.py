"""Reservations of nodes for starving operations whose next job fits on no node."""
