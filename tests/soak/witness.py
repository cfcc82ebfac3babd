"""A job that tells the truth: `python witness.py FOLDER SECONDS`.

It holds the lock of its operation and index while it runs, and writes down when it began and ended. If another process holds the
lock, one job runs twice: it says so in `twice` and ends with 99.
"""

import fcntl
import os
import sys
import time


def main() -> int:
    """Runs for its time."""
    folder, seconds = sys.argv[1], float(sys.argv[2])
    operation, index, attempt = os.environ["HEADRACE_JOB"].rsplit(".", 2)
    name = f"{folder}/{operation}.{index}"
    with open(f"{name}.lock", "a") as lock, open(name, "a", buffering=1) as story:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with open(f"{folder}/twice", "a") as twice:
                twice.write(f"{operation}.{index} attempt {attempt}\n")
            return 99
        story.write(f"began {attempt}\n")
        time.sleep(seconds)
        story.write(f"ended {attempt}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
