"""Reservations of nodes for operations that starve and whose jobs fit on no node."""
