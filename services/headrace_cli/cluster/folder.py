"""The folder of a cluster: in it each party has a folder of its own, with its credential and settings.

`nats/nats.conf`, `provisioner/credential`, `admission/`, `fair_share/`, `integral/`, `allocator/` (`credential`, `settings.toml`),
`nodes/<node>/credential` of agents beside the services, and `client/` for people (`credential`, `endpoint.json`), with
`client/nodes/<node>/` to be taken to hosts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.client.place import CREDENTIAL_FILE, ENDPOINT_FILE, Endpoint
from headrace.errors import BadInput
from headrace.ids import NodeName, TreeName, node_name
from headrace.runtime.clock import SystemClock
from headrace_cli.cluster.authority import Operator, Passwords, Proofs
from headrace_cli.up.configuration import nats_configuration, service_settings, to_toml
from headrace_cli.up.state_folder import StateFolder

_TREE: Final = TreeName("default")
_SETTINGS: Final = "settings.toml"


class ClusterFolder:
    """Files of one cluster. What exists is kept: a credential never changes by itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = StateFolder(path)
        #: The keys of the operator stand here, if there is one.
        self.authority = path / "authority"
        self._proofs: Proofs = Passwords(self._files)

    def write(
        self,
        url: str,
        listen: str,
        nodes: list[NodeName],
        beside: list[NodeName],
        *,
        health: str = "",
        has_operator: bool = False,
    ) -> list[NodeName]:
        """Writes all files, and returns the nodes that the server lets in. Agents `beside` the services get a credential alone.

        Raises `BadInput` for a node that is in both places, and OSError.
        """
        if has_operator or self.authority.exists():
            self._proofs = Operator(self.authority, self._files, lambda: int(SystemClock().wall_ms() / 1000))
        client = self._folder(self._path / "client")
        self._let_in(Party(kind=PartyKind.PERSON), client, "headrace")
        endpoint = msgspec.json.encode(Endpoint(url=url, tree=_TREE)).decode()
        self._write(client / ENDPOINT_FILE, endpoint + "\n")
        provisioner = PartyKind.PROVISIONER
        self._let_in(Party(kind=provisioner), self._folder(self._path / provisioner.value), provisioner.value)
        common = {"nats_url": url, "tree": _TREE, "administrators": "*"}
        for kind in (kind for kind in PartyKind if kind.is_service):
            folder = self._folder(self._path / kind.value)
            tree = "*" if kind is PartyKind.ADMISSION else _TREE
            credential = self._let_in(Party(kind=kind, tree=tree), folder, kind.value)
            own = {kind.value: {"credential_file": str(credential)}}
            self._write(folder / _SETTINGS, service_settings(common, own))
        handed_out, inside = self._folder(client / "nodes"), self._folder(self._path / "nodes")
        known = [*self._nodes(handed_out, nodes), *self._nodes(inside, beside)]
        names = [NodeName(folder.name) for folder in known]
        for name in names:
            if names.count(name) > 1:
                raise BadInput("node", name, f"a name that stands in one of {handed_out} and {inside}")
        for folder in known:
            credential = self._let_in(
                Party(kind=PartyKind.NODE, name=folder.name, tree=_TREE), self._folder(folder), f"agent-{folder.name}"
            )
            if folder.parent == handed_out:
                agent = {"node": folder.name, "credential_file": credential.name}
                self._write(folder / _SETTINGS, to_toml({"common": {"nats_url": url, "tree": _TREE}, "agent": agent}))
        server = self._folder(self._path / "nats")
        more = f"http: {json.dumps(health)}\n" if health else ""
        self._write(
            server / "nats.conf", nats_configuration(server / "store", listen, self._proofs.server_part(server), more)
        )
        return sorted(names)

    def _nodes(self, folder: Path, wanted: list[NodeName]) -> Iterator[Path]:
        there = [path.name for path in folder.iterdir() if path.is_dir()]
        return (folder / node_name(name) for name in sorted({*there, *wanted}))

    def _let_in(self, party: Party, folder: Path, user: str) -> Path:
        file = folder / CREDENTIAL_FILE
        self._proofs.let_in(party, file, user)
        _give_to_owner_of_folder(file)
        return file

    def _write(self, file: Path, text: str) -> None:
        self._files.write(file, text)
        _give_to_owner_of_folder(file)

    def _folder(self, path: Path) -> Path:
        if not path.exists():
            path.mkdir(mode=0o700, parents=True)
            _give_to_owner_of_folder(path)
        return path


def _give_to_owner_of_folder(path: Path) -> None:
    """In a container root writes what others are to read: each party has a volume that belongs to its own user."""
    owner = path.parent.stat()
    if owner.st_uid != os.geteuid():
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
