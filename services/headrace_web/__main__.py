"""The web service as a process of `headrace up`: `python -m headrace_web STATE PORT LOG_LEVEL`.

The service waits until `up` has announced its server. It writes each new address to the file `web/address.json` of the state folder, and
`up` prints this address. The secrets of the service are in the same folder, so that browsers and programs stay admitted when the service is
restarted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import anyio
import msgspec

from headrace.client import NotRunning
from headrace.errors import HeadraceError
from headrace.obs.logging import configure, logger
from headrace_web.server import Listening, Options, serve, write_private

#: Seconds before the next try to connect.
_AGAIN_S: Final = 0.1


async def _serve(options: Options, folder: Path) -> None:
    def tell(listening: Listening) -> None:
        write_private(folder / "address.json", msgspec.json.encode(listening).decode())

    while True:
        try:
            return await serve(options, tell)
        except NotRunning:
            await anyio.sleep(_AGAIN_S)


def main() -> None:
    """Serve until SIGTERM. Without a usable port the exit status is 1, and `up` tries again."""
    state, port, level = sys.argv[1:]
    configure("web", level)
    folder = Path(state) / "web"
    try:
        anyio.run(_serve, Options(int(port), state=state, folder=folder), folder)
    except HeadraceError as error:
        logger().error("the web service cannot run", error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
