"""Groups of people: their bucket, their requests, and the groups that the host of admission knows."""
