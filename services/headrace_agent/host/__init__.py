"""The host of the agent: its figures, its folders, and the environment that it gives to jobs."""
