"""The files of the runner: records of jobs that outlive the runner, the logs of jobs, and the removal of old logs."""
