"""Live displays on a terminal: only what changed is written, and keys are read one by one."""
