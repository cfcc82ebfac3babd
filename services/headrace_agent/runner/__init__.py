"""The runner: a small process, one per agent, that runs jobs as processes and outlives the agent."""
