"""The files by which a folder opens a server: its address, a credential, and the authority that vouches for it.

`headrace up` writes `endpoint.json`, `credential` (one line, user:password) and `ca.pem`, readable by their owner only and new at each
start. It removes the first and the last when it stops.
"""

from __future__ import annotations

import msgspec

from headrace.ids import TreeName
from headrace.obs.trace_sinks import Traces

ENDPOINT_FILE = "endpoint.json"
#: A credential that lets in one person is that of this and their name.
PERSON_LOGIN = "person-"
CREDENTIAL_FILE = "credential"
#: The authority by whose word the server is believed, where it is none of the system's.
AUTHORITY_FILE = "ca.pem"


class Endpoint(msgspec.Struct, frozen=True):
    """The content of `endpoint.json`."""

    #: Such as `tls://127.0.0.1:4270`.
    url: str
    tree: TreeName = TreeName("default")
    #: Process id of the `headrace up` that wrote it.
    pid: int = 0
    traces: Traces = Traces()
    #: The user by whose name the credential lets in; empty: any.
    user: str = ""
