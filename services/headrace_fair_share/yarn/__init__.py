"""Shares as YARN's FairScheduler divides them: in whole units, by weight between a minimum and a maximum, whatever is demanded."""
