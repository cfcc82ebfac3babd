"""Pages about pools: what each is owed and why, one or two side by side."""
