"""Files of the runner: files that outlive it, the logs of jobs, and the removal of old logs."""
