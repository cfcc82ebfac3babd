"""Commands about pools that have a module of their own."""
