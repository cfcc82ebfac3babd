"""Run one call of an executor inside a job. This file is sent to the node, so it imports nothing of Headrace.

The outcome is written to stdout behind all that the call wrote: a line with the outcome, and a line with the length of that line.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import traceback

#: First word of both lines.
MARK = b"headrace-outcome"
#: Name in the environment: the folder from which the caller imports.
CALLER_FOLDER = "HEADRACE_CALLER_FOLDER"


def outcome_of(call: bytes) -> bytes:
    """Return (True, result) or (False, (exception, traceback as text)), pickled."""
    import cloudpickle

    outcome: bytes
    try:
        function, arguments, named = pickle.loads(call)
        outcome = cloudpickle.dumps((True, function(*arguments, **named)))
    except BaseException as error:
        text = traceback.format_exc()
        try:
            outcome = cloudpickle.dumps((False, (error, text)))
        except Exception:
            # The exception itself cannot be pickled.
            outcome = cloudpickle.dumps((False, (RuntimeError(f"{type(error).__name__}: {error}"), text)))
    return outcome


def main() -> int:
    """Run the call whose number is the job's index. The exit status is 0 if the call returned, and 1 if it raised."""
    stdout = os.fdopen(os.dup(1), "wb")
    with open(os.path.join("calls", os.environ["HEADRACE_JOB_INDEX"]), "rb") as file:
        call = file.read()
    folder = os.environ.get(CALLER_FOLDER, "")
    if os.path.isdir(folder):
        os.chdir(folder)
    sys.path[0] = folder
    data = outcome_of(call)
    sys.stdout.flush()
    line = MARK + b" " + base64.b64encode(data)
    stdout.write(b"\n" + line + b"\n" + MARK + b"-bytes %d\n" % len(line))
    stdout.close()
    return 0 if pickle.loads(data)[0] else 1


if __name__ == "__main__":
    sys.exit(main())
