"""Floods: finds the persons, nodes and hosts that send the server more than a bound, and holds them out for a pause."""
