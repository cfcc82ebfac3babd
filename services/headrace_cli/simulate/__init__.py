"""The command `headrace simulate`: run a recorded workload of any scheduler through Headrace's engines in simulated time."""
