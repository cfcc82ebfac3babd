"""The runner: one small process per agent that runs jobs as processes, and outlives the agent."""
