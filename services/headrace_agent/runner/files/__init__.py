"""Files of the runner: records that outlive it, the logs of jobs, and the removal of old logs."""
