"""Pages about pools: the fair share of a pool and its reasons, for one pool or two side by side."""
