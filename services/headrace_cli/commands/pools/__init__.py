"""The commands `pool …`, with what they read and write and the tables and pages that they print."""
