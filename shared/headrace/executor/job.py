"""Run one call of an executor inside a job. This file is sent to the node, so it imports nothing of Headrace.

After all output of the call, two lines are written to stdout: a line with the outcome, and a line with the length of the first line.
"""

from __future__ import annotations

import base64
import os
import pickle
import stat
import sys
import traceback

#: Beginning of the two lines with the outcome and its length.
MARK = b"headrace-outcome"
#: Name of the environment variable with the folder from which the caller imports modules.
CALLER_FOLDER = "HEADRACE_CALLER_FOLDER"


def outcome_of(call: bytes) -> tuple[bool, bytes]:
    """Return True if the call returned, and its outcome, pickled: (True, result), or (False, (pickled exception, traceback as text)).

    The exception is pickled on its own, so that the caller still has the traceback if the exception cannot be unpickled there.
    """
    import cloudpickle

    try:
        function, arguments, named = pickle.loads(call)
        return True, cloudpickle.dumps((True, function(*arguments, **named)))
    except BaseException as error:
        text = traceback.format_exc()
        try:
            pickled = cloudpickle.dumps(error)
        except Exception:
            # The exception itself cannot be pickled, so its type and text are returned.
            pickled = cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
        return False, pickle.dumps((False, (pickled, text)))


def why_unsafe(folder: str) -> str:
    """Return why another account of this host can have put files into a folder; empty if no other account can.

    In a folder that everybody can write, such as /tmp, any account can make folders. So if everybody can write to a folder on the
    path, the next folder on the path must belong to root or to this account.
    """
    if os.stat(folder).st_mode & stat.S_IWOTH:
        return f"everybody can write to {folder}"
    while (above := os.path.dirname(folder)) != folder:
        mode, owner = os.stat(above).st_mode, os.lstat(folder).st_uid
        if mode & stat.S_IWOTH and owner not in (0, os.geteuid()):
            return f"{folder} belongs to account {owner}, and everybody can write to {above}"
        # Without the sticky bit, everybody can put another folder in place of this folder.
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"everybody can write to {above} and replace {folder}"
        folder = above
    return ""


def is_trusted(folder: str) -> bool:
    """True if the folder exists, and no other account of this host can have put modules there, which the call would import."""
    if not os.path.isdir(folder):
        return False
    if why := why_unsafe(folder):
        print(f"{folder} is not used: {why}", file=sys.stderr)
    return not why


def main() -> int:
    """Run the call whose number is the job's index. Return the exit status: 0 if the call returned, and 1 if it raised an exception."""
    stdout = os.fdopen(os.dup(1), "wb")
    with open(os.path.join("calls", os.environ["HEADRACE_JOB_INDEX"]), "rb") as file:
        call = file.read()
    folder = os.path.realpath(os.environ.get(CALLER_FOLDER, ""))
    del sys.path[0]
    if is_trusted(folder):
        os.chdir(folder)
        sys.path.insert(0, folder)
    has_returned, data = outcome_of(call)
    sys.stdout.flush()
    line = MARK + b" " + base64.b64encode(data)
    stdout.write(b"\n" + line + b"\n" + MARK + b"-bytes %d\n" % len(line))
    stdout.close()
    return 0 if has_returned else 1


if __name__ == "__main__":
    sys.exit(main())
