"""The sight of a running service: structured logs now, traces and metrics by the same names later."""
