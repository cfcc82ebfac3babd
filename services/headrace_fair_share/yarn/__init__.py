"""Shares as YARN's FairScheduler computes them: whole units, by weight between a minimum and a maximum, independent of demand."""
