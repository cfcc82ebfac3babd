"""The files in a state folder that allow connecting to a server: its address, a credential, and the authority that vouches for it.

`headrace up` writes `endpoint.json`, `credential` (one line, user:password) and `ca.pem`, readable by their owner only and new at each
start. It removes `endpoint.json` and `ca.pem` when it stops.
"""

from __future__ import annotations

import msgspec

from headrace.ids import TreeName
from headrace.obs.trace_sinks import Traces

ENDPOINT_FILE = "endpoint.json"
CREDENTIAL_FILE = "credential"
#: Name of the file with the authority that vouches for the server, if no authority of the system does.
AUTHORITY_FILE = "ca.pem"


class Endpoint(msgspec.Struct, frozen=True):
    """The content of `endpoint.json`."""

    #: Address, such as `tls://127.0.0.1:4270`.
    url: str
    tree: TreeName = TreeName("default")
    #: Process id of the `headrace up` that wrote the file.
    pid: int = 0
    traces: Traces = Traces()
    #: User that the credential is valid for; empty: any user.
    user: str = ""
