"""`python -m tests.soak.api [--minutes N] [--seed S]`: random requests to the HTTP API of a running `headrace up --web`, for a while.

Status 0 if no request was answered by a fault or in a way that the description of the API does not have.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from headrace_web.api.endpoint import PREFIX
from tests.support.headrace_up import Up
from tests.support.random_requests import send_random_requests

#: Largest number of requests to an endpoint in a round.
_EXAMPLES: Final = 20
_CASES: Final = re.compile(r"(\d+) generated")


def main() -> int:
    """Send requests, round after round with another seed, and print what each found."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.api", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="how long (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (1)")
    arguments = parser.parse_args()
    began_s, seed, sent = time.monotonic(), arguments.seed, 0
    with Up() as up, tempfile.TemporaryDirectory() as folder:
        web = up.begin("web", "--port", "0", "--json")
        assert web.stdout is not None
        told = json.loads(web.stdout.readline())
        while not sent or time.monotonic() < began_s + 60 * arguments.minutes:
            done = send_random_requests(
                told["api"].removesuffix(PREFIX), Path(told["header_file"]), Path(folder), examples=_EXAMPLES, seed=seed
            )
            found = _CASES.search(done.stdout)
            print(f"seed {seed}: {found[0] if found else 'no requests'}, status {done.returncode}", flush=True)
            if found is None or done.returncode or web.poll() is not None:
                print(done.stdout[-20_000:])
                return 1
            sent, seed = sent + int(found[1]), seed + 1
        web.send_signal(signal.SIGTERM)
        web.communicate()
    print(f"{sent} requests in {time.monotonic() - began_s:.0f} s, every answer as described")
    return 0


if __name__ == "__main__":
    sys.exit(main())
