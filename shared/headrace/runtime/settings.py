"""Settings: one Struct for each service, filled from a TOML file and the environment. The Structs document all settings.

Unknown keys are refused. The file has a table for each service (`[allocator]`) and one for all services (`[common]`). A
variable `HEADRACE_<SERVICE>_<KEY>` or `HEADRACE_<KEY>` overrides the file. Durations are written `30s` or `500ms`; a bare
integer is milliseconds. Keys that end in `_file` or `_folder` are paths. A relative path in a file is relative to the
folder of that file.
"""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.files.bounded import SMALL_FILE_BYTES, read_bounded
from headrace.obs.trace_sinks import Traces
from headrace.pools.rights import Person, person_of
from headrace.server_urls import parse_server_urls

S = TypeVar("S", bound="CommonSettings")

_WHOLE: Final = re.compile(r"\s*[0-9]{1,15}\s*\Z")
#: The name endings of settings that are paths.
_PATHS: Final = ("_file", "_folder")


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that every service has."""

    #: Address of the NATS server. For a cluster, the addresses of several servers, separated by commas.
    nats_url: str = "nats://127.0.0.1:4222"
    #: Number of servers in a cluster that keep each bucket and stream. `headrace bus provision --replicas` changes it.
    replicas: Literal[1, 3, 5] = 1
    #: File with the credential, one line `user:password`, readable by its owner only; empty for none.
    credential_file: str = ""
    #: File with the certificate authorities (PEM) that a server at `tls://` is checked against; empty: the system's authorities.
    ca_file: str = ""
    #: Pool tree that the process serves; a setting of fair_share, integral, allocators and agents.
    tree: str = "default"
    #: `debug`, `info`, `warning` or `error`.
    log_level: str = "info"
    #: Longest time that the first connection to the server may take.
    connect_timeout_ms: int = 30_000
    #: Longest delay before the process tries to connect again after a connection was lost. Use a longer delay if very many
    #: processes would reconnect at once.
    longest_reconnect_delay_ms: Annotated[int, msgspec.Meta(ge=10, le=60_000)] = 250
    #: Name of this process, which it keeps after a restart. A leader and its standby have different names. Empty: the host's name.
    instance: str = ""
    #: A leader that has not renewed its lease for this time is replaced by a standby.
    lease_ms: Annotated[int, msgspec.Meta(ge=200, le=600_000)] = 3_000
    #: True if a process with another name stands by. If this process crashes and restarts, the standby then leads, and not this process.
    has_standby: bool = False
    #: Port on which `/metrics` and `/health` are served over HTTP; 0: not served.
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    metrics_host: str = "127.0.0.1"
    #: Collector of traces that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`; empty: none.
    trace_endpoint: str = ""
    #: Folder of the file to which spans are written if there is no collector; empty: nothing is traced.
    trace_folder: str = ""
    #: Fraction of operations that are traced, whichever process began the trace.
    trace_sample_ratio: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 1.0
    #: Largest number of one user's requests that may wait at each subject of a service. Further requests of that user
    #: are answered "busy".
    most_waiting_of_a_user: Annotated[int, msgspec.Meta(ge=1)] = 2_000
    most_waiting_bytes_of_a_user: Annotated[int, msgspec.Meta(ge=2**20)] = 16 * 2**20
    #: Users who may change everything, separated by commas. `group:NAME` stands for the members of a group (agents ignore it, since
    #: they know no groups), `*` for everybody who has a credential for the server; empty: nobody.
    administrators: str = ""

    def person(self, user: str) -> Person:
        """Return the user of this name with the rights that follow from `administrators`."""
        return person_of(user, self.administrator_names)

    @property
    def traces(self) -> Traces:
        """The destination of spans."""
        return Traces(self.trace_endpoint, self.trace_folder, self.trace_sample_ratio)

    @property
    def server_urls(self) -> list[str]:
        """The addresses of the servers. Raises `BadInput`."""
        return parse_server_urls(self.nats_url, place="nats_url")

    @property
    def instance_name(self) -> str:
        """The name of this process, under which it takes the lease of a role."""
        return self.instance or socket.gethostname()

    @property
    def administrator_names(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.administrators.split(",")) - {""}


def load(kind: type[S], service: str, path: Path | None, environment: Mapping[str, str]) -> S:
    """Read the settings of one service. Raises `BadInput` that names the file and key, or the variable."""
    values: dict[str, Any] = {}
    if path is not None:
        values.update(_from_file(kind, service, path))
    values.update(_from_environment(kind, service, environment))
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput.because(
            str(path or "environment"), f"the settings of {service} cannot be used: {error}"
        ) from None


def _from_file(kind: type[S], service: str, path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(read_bounded(path, SMALL_FILE_BYTES, "settings file").decode())
    except OSError as error:
        raise BadInput.because(str(path), f"the settings file cannot be read: {error.strerror or error}") from None
    # `ValueError` includes `TOMLDecodeError`, and the error that Python raises for a number with thousands of digits.
    except ValueError as error:
        raise BadInput.because(str(path), f"the settings file is not valid TOML: {error}") from None
    known = set(kind.__struct_fields__)
    values: dict[str, Any] = {}
    for table in ("common", service):
        entries = tables.get(table, {})
        if not isinstance(entries, dict):
            raise BadInput(f"{path}: {table}", entries, f"a table [{table}]")
        for key, value in entries.items():
            if key not in known:
                raise BadInput(f"{path}: [{table}] {key}", value, "one of " + ", ".join(sorted(known)))
            values[key] = _path_beside(path, key, _plain(key, value, f"{path}: [{table}] {key}"))
    return values


def _path_beside(file: Path, key: str, value: Any) -> Any:
    """Return the value; a relative path is joined to the folder of the settings file, since the service may start in any folder."""
    if key.endswith(_PATHS) and isinstance(value, str) and value:
        return os.path.join(os.path.dirname(os.path.abspath(file)), os.path.expanduser(value))
    return value


def _from_environment(kind: type[S], service: str, environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    known: set[str] = set()
    own = f"HEADRACE_{service.upper()}_"
    for key in kind.__struct_fields__:
        for name in (f"HEADRACE_{key.upper()}", own + key.upper()):
            known.add(name)
            if name in environment:
                values[key] = _plain(key, environment[name], name)
    for name, value in environment.items():
        if name.startswith(own) and name not in known:
            raise BadInput(name, value, "one of the variables " + ", ".join(sorted(known)))
    return values


def _plain(key: str, value: Any, place: str) -> Any:
    if key.endswith("_ms") and isinstance(value, str):
        # A number without a unit is in milliseconds, as the name of the setting says.
        return parse_duration_ms(int(value) if _WHOLE.match(value) else value, place=place)
    return value
