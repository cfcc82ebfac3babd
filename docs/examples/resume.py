"""Counts up to the number that it is given, and goes on where it was when its place was taken back."""

import os
import pathlib
import sys
import time

from headrace import checkpoint

saved = pathlib.Path(f"saved-{os.environ.get('HEADRACE_JOB_INDEX', '0')}")
step, steps = int(saved.read_text()) if saved.exists() else 0, int(sys.argv[1])
checkpoint.watch()
print("from", step, flush=True)
while step < steps:
    time.sleep(0.1)  # The work.
    step += 1
    checkpoint.tell_progress(step, steps)
    if checkpoint.is_wanted():
        checkpoint.write(saved, str(step))
        left_s = checkpoint.seconds_left()
        print(f"saved {step}" + (f" with {left_s:.1f} s left" if left_s is not None else ""), flush=True)
        checkpoint.leave()
saved.unlink(missing_ok=True)
