"""Commands about pools that have their own modules."""
