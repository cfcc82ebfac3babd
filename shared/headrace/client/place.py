"""Find the server: by a state folder like that of `headrace up`, or by an address and a credential."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from headrace.client.errors import EndpointUnreadable, NotRunning, NotYours
from headrace.client.places.endpoint import AUTHORITY_FILE, CREDENTIAL_FILE, ENDPOINT_FILE, Endpoint
from headrace.client.places.kept import SavedServers
from headrace.errors import BadInput
from headrace.files.bounded import SMALL_FILE_BYTES, read_bounded
from headrace.ids import TreeName, UserName, tree_name, user_name, user_name_from_login
from headrace.obs.trace_sinks import Traces
from headrace.wire.trace import read_trace

#: A disk with fewer free bytes counts as full. To store a message, the NATS server needs more space than the message itself takes.
_DISK_FULL_BYTES: Final = 4 * 2**20


class Place(msgspec.Struct, frozen=True):
    """The address of a server, and what is needed to connect to it."""

    #: Address; for a cluster several addresses with commas between them.
    url: str
    #: File of the credential; empty if the server asks for no credential.
    credential_file: str
    #: File with the authorities that vouch for a server at `tls://`; empty: the system's authorities.
    ca_file: str
    tree: TreeName
    #: The folder or the address, for messages.
    where: str
    #: State folder of the server; empty if the address was given.
    folder: str = ""
    traces: Traces = Traces()
    #: User that the credential is valid for; empty: any user, and the login name is used.
    user: str = ""
    #: Process id of the `headrace up` that runs the server; 0 if unknown.
    keeper: int = 0

    def not_running(self, why: str) -> NotRunning:
        """Return the error for a server that does not answer here."""
        return NotRunning(self.where, why, is_own=True) if self.keeper else NotRunning(self.url, why)


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return `$HEADRACE_STATE`, else `$XDG_STATE_HOME/headrace`, else `~/.local/state/headrace`.

    The path is absolute and need not exist.
    """
    chosen = environment.get("HEADRACE_STATE")
    if chosen:
        return Path(os.path.abspath(Path(chosen).expanduser()))
    base = environment.get("XDG_STATE_HOME", "")
    # A relative path is ignored: the XDG rules call it invalid.
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "headrace"


def traces_folder(state: Path) -> Path:
    """Return the folder of trace spans in a state folder."""
    return state / "traces"


def find_place(
    *,
    state: Path | str | None = None,
    url: str = "",
    credential_file: Path | str | None = None,
    ca_file: Path | str | None = None,
    tree: str = "",
    environment: Mapping[str, str] = os.environ,
) -> Place:
    """Find the server by the first of these that is given: `url`, `state`, `$HEADRACE_NATS_URL`, `$HEADRACE_STATE`, the saved server in use
    (see `SavedServers.current`), the default state folder.

    Without `ca_file`, the certificate of a server at `tls://` is checked against `ca.pem` beside the credential, if
    that file exists.

    The tree is `tree`, else `$HEADRACE_TREE`, else the first tree that `headrace up` serves. Raises `NotRunning` if the state folder has no
    endpoint, `NotYours`, and `BadInput`.
    """
    tree = tree or environment.get("HEADRACE_TREE", "")
    wanted = tree_name(tree) if tree else None
    if not url and state is None:
        url = environment.get("HEADRACE_NATS_URL", "")
        credential_file = credential_file or environment.get("HEADRACE_CREDENTIAL_FILE")
        ca_file = ca_file or environment.get("HEADRACE_CA_FILE")
    traces = _traces_in(environment)
    if url:
        if not ca_file and credential_file and url.startswith("tls://"):
            # `cluster init` puts the file of the authority beside each credential, so the file is looked for there.
            beside = Path(credential_file).with_name(AUTHORITY_FILE)
            ca_file = beside if beside.exists() else None
        tree = wanted or TreeName("default")
        return Place(url, str(credential_file or ""), str(ca_file or ""), tree, where=url, traces=traces)
    if state is None and not environment.get("HEADRACE_STATE"):
        kept = SavedServers(environment)
        state = kept.folder(name) if (name := kept.current()) else None
    folder = Path(state) if state is not None else state_folder(environment)
    endpoint = _endpoint_in(folder)
    authority = folder / AUTHORITY_FILE
    return Place(
        url=endpoint.url,
        credential_file=str(credential_file or folder / CREDENTIAL_FILE),
        ca_file=str(ca_file or (authority if authority.exists() else "")),
        tree=wanted or endpoint.tree,
        where=str(folder),
        folder=str(folder),
        traces=traces if traces.endpoint or traces.folder else endpoint.traces,
        user=endpoint.user,
        keeper=endpoint.pid,
    )


def moved(place: Place) -> Place:
    """Return `place` with the address that the state folder names now, because a restarted `headrace up` may listen at another port.

    Return `place` unchanged if it has no folder or the folder cannot be read.
    """
    if not place.folder:
        return place
    try:
        return msgspec.structs.replace(place, url=_endpoint_in(Path(place.folder)).url)
    except (NotRunning, NotYours):
        return place


def full_disk(place: Place) -> str:
    """Return a message if the disk of the server's files is on this machine and full, else an empty text."""
    folder = Path(place.folder) / "nats"
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError:
        return ""
    if not place.folder or free_bytes >= _DISK_FULL_BYTES:
        return ""
    return f"the disk of {folder} is full ({free_bytes // 1024} KiB are free); free space on it"


def _endpoint_in(folder: Path) -> Endpoint:
    """Read the endpoint in a folder. Raises `NotRunning`, `NotYours`."""
    file = folder / ENDPOINT_FILE
    try:
        return msgspec.json.decode(read_bounded(file, SMALL_FILE_BYTES, ENDPOINT_FILE), type=Endpoint)
    except PermissionError:
        raise NotYours(str(folder), _owner(folder)) from None
    except FileNotFoundError:
        raise NotRunning(str(folder), "no endpoint.json in this state folder", is_own=True) from None
    except OSError as error:
        raise EndpointUnreadable(str(file), str(error.strerror)) from None
    except msgspec.DecodeError as error:
        raise NotRunning(str(file), str(error), is_own=True) from None


def _owner(folder: Path) -> str:
    try:
        return folder.owner()
    except (KeyError, OSError):
        return "another user"


def trace_of_caller(environment: Mapping[str, str] = os.environ) -> str:
    """Return the trace in `$TRACEPARENT` that this process is part of. Empty for none."""
    context = read_trace(environment.get("TRACEPARENT", ""))
    return "" if context is None else context.header()


def _traces_in(environment: Mapping[str, str]) -> Traces:
    given = {name: environment.get(f"HEADRACE_TRACE_{name.upper()}", "") for name in Traces.__struct_fields__}
    try:
        return msgspec.convert({name: value for name, value in given.items() if value}, Traces, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(
            "HEADRACE_TRACE_SAMPLE_RATIO", given["sample_ratio"], f"a number from 0 to 1 ({error})"
        ) from None


def login_user() -> UserName:
    """Return the login name of this process's user as a valid user name."""
    try:
        return user_name_from_login(pwd.getpwuid(os.getuid()).pw_name)
    except (KeyError, BadInput):  # An account without an entry, usual in containers, or without a usable letter.
        return user_name(f"uid-{os.getuid()}")
