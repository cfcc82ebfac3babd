"""A terminal that shows something live: only what changed is written, and keys are read one by one."""
