"""Everything that admission knows: operations, the ledgers of their jobs, and for each tree a book of its pools.

Events change this state, one at a time, in `State.apply`, so a replay of the log gives the same state. The present configuration is
not in the log: `State.configure` sets it. This package is pure and imports nothing from `decisions`.
"""
