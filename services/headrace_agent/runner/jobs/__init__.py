"""The processes of jobs: their start, their limits, their end, and the processes that a killed runner left."""
