"""The host of the agent: its resources and folders, and the environment that it gives to jobs."""
