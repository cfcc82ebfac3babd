"""Parties that send the server more than a bound: which they are, and how they are held out."""
