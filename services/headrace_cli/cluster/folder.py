"""The folder of a cluster, in which each party has its own folder with its credential and settings.

* `nats/nats.conf`: the configuration of the server. If there are several servers, each has a folder with its name.
* `provisioner/credential`: the credential of the provisioner.
* `admission/`, `fair_share/`, `integral/`, `allocator/`: `credential` and `settings.toml` of each service.
* `admission/authority.json`: the keys for letting hosts join, if the cluster has an operator.
* `nodes/<node>/credential`: the credential of an agent beside the services.
* `notify/`, `export/`: `credential` of each consumer, if there is one. `web/` has none.
* `client/`: `credential` and `endpoint.json` for administrators, and `cluster.json` with the options.
* `client/nodes/<node>/`: the folder to copy to a host.
* `client/people/<person>/`: the folder to give to a person.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from headrace.access.jwt import claims_of, groups_in
from headrace.access.key_credential import PERSON_LOGIN, read_key_credential
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.client.places.endpoint import AUTHORITY_FILE, CREDENTIAL_FILE, ENDPOINT_FILE, Endpoint
from headrace.errors import BadInput
from headrace.files.foreign_folder import refuse_foreign_folder
from headrace.ids import GroupName, NodeName, TreeName, UserName, node_name, user_name
from headrace.pools.pool_config import EVERYBODY, user_or_group
from headrace.runtime.clock import SystemClock
from headrace.server_urls import parse_server_urls
from headrace_cli.cluster.authority import Operator, Passwords, Proofs
from headrace_cli.cluster.certificates import SERVER_FILES
from headrace_cli.cluster.consumers import Consumer
from headrace_cli.up.configuration import Table, nats_configuration, server_tls, service_settings, to_toml
from headrace_cli.up.state_folder import StateFolder

_TREE: Final = TreeName("default")
#: File name of the settings of a service.
SETTINGS_FILE: Final = "settings.toml"
#: File name of the configuration of a server.
SERVER_FILE: Final = "nats.conf"
#: Name of the folder in which a server stores its streams and buckets.
STORE_FOLDER: Final = "store"
_ACCOUNT_AUTHORITY: Final = "authority.json"
_ROUTES_PORT: Final = 6222
_OPTIONS: Final = "client/cluster.json"
#: The user of `client/credential`, and an administrator of every cluster that names its administrators.
ADMINISTRATOR: Final = UserName("administrator")
_LOOPBACK: Final = "localhost"


class ClusterOptions(msgspec.Struct, frozen=True):
    """The options of `headrace cluster init`, as they were last given."""

    url: str
    listen: str
    #: Loopback address and port of the server's monitoring; empty: monitoring is off.
    health: str = ""
    servers: Sequence[str] = ("nats",)
    #: Administrators in the settings of the services, separated by commas. Folders of earlier releases lack this field: then everybody is
    #: an administrator.
    administrators: str = EVERYBODY

    @property
    def administrator_names(self) -> list[str]:
        """Return the users and groups who may do everything."""
        return [name for each in self.administrators.split(",") if (name := each.strip())]

    @property
    def replicas(self) -> int:
        """Return how many servers keep each bucket and stream: all servers if there are three or five, otherwise one server."""
        return len(self.servers) if len(self.servers) in (3, 5) else 1

    @property
    def everybody_administers(self) -> bool:
        """True if every holder of a credential may do everything."""
        return EVERYBODY in self.administrator_names


class ClusterFolder:
    """The files of one cluster. Existing files are kept, and a credential never changes on its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = StateFolder(path)
        #: Folder of the operator's keys, if the cluster has an operator.
        self.authority = path / "authority"
        self._proofs: Proofs = Passwords(self._files)
        #: New groups, by person, of the people whose credentials the next `write` makes with other groups.
        self._groups: dict[UserName, tuple[GroupName, ...]] = {}
        #: True if the credential of any person names groups.
        self._has_groups = False

    def options(self) -> ClusterOptions | None:
        """Return the options with which the folder was made, or None if it was not made. Raises `BadInput`."""
        file = self._path / _OPTIONS
        try:
            return msgspec.json.decode(file.read_bytes(), type=ClusterOptions)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise BadInput.because(
                str(file),
                f"the options of the cluster cannot be read ({error}). Restore the file as `headrace cluster init` wrote it",
            ) from None

    def administrators(self, named: str) -> str:
        """Return the administrators: the users and groups in `named` and the holder of `client/credential`, or everybody.

        If `named` is empty, the administrators stay as they were; in a new cluster the holder of `client/credential` is
        the only one. Raises `BadInput`.
        """
        wanted = [name for each in named.split(",") if (name := each.strip())]
        if EVERYBODY in wanted:
            return EVERYBODY
        known = None if wanted else self.options()
        if known is not None:
            return known.administrators
        return ",".join(dict.fromkeys([ADMINISTRATOR, *map(user_or_group, wanted)]))

    def person(self, name: UserName) -> Path:
        """Return the folder for a person."""
        return self._path / "client" / "people" / name

    def groups_of(self, name: UserName) -> tuple[GroupName, ...]:
        """Return the groups that the credential of a person names. Raises OSError, `BadInput`."""
        file = self.person(name) / CREDENTIAL_FILE
        known = read_key_credential(file.read_text(encoding="utf-8")) if file.exists() else None
        return () if known is None else groups_in(claims_of(known.jwt))

    def set_groups(self, name: UserName, groups: Sequence[GroupName]) -> None:
        """Let the next `write` make a credential with these groups for a person. A credential with other groups is replaced and revoked.

        Raises OSError, and `BadInput` for a cluster without an operator.
        """
        if not self.authority.exists():
            raise BadInput.because(
                "--groups", "this cluster has no operator, so its credentials name no groups. Use `headrace group add`"
            )
        self._groups[name] = tuple(groups)

    def write(
        self,
        options: ClusterOptions,
        nodes: Sequence[NodeName] = (),
        beside: Sequence[NodeName] = (),
        people: Sequence[UserName] = (),
        consumers: Sequence[Consumer] = (),
        *,
        removed: Sequence[UserName] = (),
        has_operator: bool = False,
        tls: Path | None = None,
    ) -> list[NodeName]:
        """Write all files and return the nodes that the server admits. Agents in `beside` get only a credential, no settings.

        The credentials of the people in `removed` are revoked; their folders stay.

        Raises OSError, and `BadInput` for a node in both folders of nodes, a person with the name of the administrator or of a consumer,
        or monitoring that other hosts could reach.
        """
        url, servers = options.url, options.servers
        # The folders of the services inside belong to the accounts of the services.
        refuse_foreign_folder(self._path, "FOLDER", with_files=False)
        parse_server_urls(url, place="--url")
        _check_loopback(options.health)
        holder = ADMINISTRATOR if ADMINISTRATOR in options.administrator_names else ""
        self._check_names(people, holder)
        if has_operator or self.authority.exists():
            self._proofs = self.operator()
        authority = self._copy_certificates(servers, url, tls)
        client = self._folder(self._path / "client")
        self._let_in(Party(kind=PartyKind.PERSON), client, "headrace")
        self._write_endpoint(client, holder, url, authority)
        self._let_people_in(people, removed, consumers, url, authority)
        provisioner = PartyKind.PROVISIONER
        folder = self._folder(self._path / provisioner.value)
        self._let_in(Party(kind=provisioner), folder, provisioner.value)
        self._write_authority(folder, authority)
        common: Table = {"nats_url": url, "tree": _TREE, "administrators": options.administrators}
        common = {**common, "replicas": options.replicas} if options.replicas > 1 else common
        for kind in (kind for kind in PartyKind if kind.is_service):
            self._write_service(kind, common, authority)
        handed_out, inside = self._folder(client / "nodes"), self._folder(self._path / "nodes")
        known = [*self._known_or_new(handed_out, nodes), *self._known_or_new(inside, beside)]
        names = [NodeName(folder.name) for folder in known]
        for name in map(node_name, names):
            if names.count(name) > 1:
                raise BadInput.because(
                    "node",
                    f"node {name} has a folder in both {handed_out} and {inside}. Keep only one of these folders",
                )
        for folder in known:
            settings = {"common": {"nats_url": url, "tree": _TREE}}
            self._write_node(folder, authority, settings if folder.parent == handed_out else None)
        for host in servers:
            self._write_server(host, options, has_tls=bool(authority))
        self._proofs.finish()
        self._write(self._path / _OPTIONS, msgspec.json.encode(options).decode() + "\n")
        return sorted(names)

    def _let_people_in(
        self,
        people: Sequence[UserName],
        removed: Sequence[UserName],
        consumers: Sequence[Consumer],
        url: str,
        authority: str,
    ) -> None:
        """Admit people and consumers: those that are wanted, and those that have a folder already, without the people in `removed`."""
        known = self._known_or_new(self._folder(self._path / "client" / "people"), people)
        logins = {path: user_name(path.name) for path in known if path.name not in removed}
        chosen = (each for each in Consumer if each in consumers or (self._path / each).exists())
        consuming = {self._path / each: each for each in chosen}
        for path, person in {**logins, **{path: each.user for path, each in consuming.items()}}.items():
            folder = self._folder(path)
            if path not in consuming or consuming[path].has_credential:
                groups = had_groups = self.groups_of(person)
                if person in self._groups and self._groups[person] != had_groups:
                    groups = self._groups[person]
                    # Remove the credential, so that a credential with a new key is made. With the same key, the server would accept the
                    # former JWT, with the former groups, until that JWT is revoked.
                    (folder / CREDENTIAL_FILE).unlink(missing_ok=True)
                self._has_groups |= bool(groups)
                party = Party(kind=PartyKind.PERSON, name=person, groups=groups)
                self._let_in(party, folder, f"{PERSON_LOGIN}{person}")
            self._write_endpoint(path, person, url, authority)

    def _write_service(self, kind: PartyKind, common: Table, authority: str) -> None:
        folder = self._folder(self._path / kind.value)
        tree = "*" if kind is PartyKind.ADMISSION else _TREE
        credential = self._let_in(Party(kind=kind, tree=tree), folder, kind.value)
        trust = {**self._write_authority(folder, authority), **self._hand_over_keys(kind, folder)}
        counts: Table = {"groups_of_login": True} if kind is PartyKind.ADMISSION and self._has_groups else {}
        own = {kind.value: {"credential_file": str(credential), **trust, **counts}}
        self._write(folder / SETTINGS_FILE, service_settings(common, own))

    def _check_names(self, people: Sequence[UserName], holder: str) -> None:
        """Check that no person has the name of the administrator `holder`, or of a consumer. Raises `BadInput`."""
        users = {each.user: self._path / each for each in Consumer}
        if holder:
            users[ADMINISTRATOR] = self._path / "client"
        for name, folder in users.items():
            if name in people or self.person(name).exists():
                raise BadInput.because(
                    "name of a person", f"{name} is already the name that {folder} uses; choose another name"
                )

    def rekey(self, *, end_old: bool) -> None:
        """Replace the keys with which admission lets hosts join; with `end_old`, revoke the former keys. Raises OSError, `BadInput`."""
        options = self.options()
        if options is None or not self.authority.exists():
            raise BadInput.because(
                str(self._path),
                "there is no cluster with an operator in this folder. `headrace cluster init … --operator` makes one",
            )
        operator = self.operator()
        if end_old:
            operator.end_former_keys()
        else:
            operator.replace_keys()
        self.write(options)

    def _write_node(self, folder: Path, authority: str, common: Mapping[str, Table] | None) -> None:
        """Admit a node.

        With `common`, also write settings with relative paths, so that the agent can run from a copy of the folder anywhere.
        """
        party = Party(kind=PartyKind.NODE, name=folder.name, tree=_TREE)
        credential = self._let_in(party, self._folder(folder), f"agent-{folder.name}")
        ca_file = self._write_authority(folder, authority)
        if common is not None:
            relative = {name: Path(path).name for name, path in ca_file.items()}
            agent = {"node": folder.name, "credential_file": credential.name, **relative}
            self._write(folder / SETTINGS_FILE, to_toml({**common, "agent": agent}))

    def operator(self) -> Operator:
        """Return the operator with its keys, and make missing keys. Raises OSError, `BadInput`."""
        return Operator(self.authority, lambda: int(SystemClock().wall_ms() / 1000))

    def _copy_certificates(self, servers: Sequence[str], url: str, tls: Path | None) -> str:
        """Copy the certificate to each server's folder and return the authority in PEM, or an empty string without TLS."""
        source = tls or self._path / servers[0]
        if tls is None and not (source / AUTHORITY_FILE).exists():
            return ""
        if not all(each.startswith("tls://") for each in parse_server_urls(url, place="--url")):
            raise BadInput("--url", url, f"addresses with tls://, because the file {source / AUTHORITY_FILE} exists")
        texts = {name: (source / name).read_text(encoding="ascii") for name in (*SERVER_FILES, AUTHORITY_FILE)}
        authority, shown = texts[AUTHORITY_FILE], texts[SERVER_FILES[0]]
        # The server must present its authority's certificate too: joining hosts know only the SHA-256 of that certificate.
        if authority.strip() not in shown:
            texts[SERVER_FILES[0]] = shown.rstrip() + "\n" + authority
        for host in servers:
            folder = self._folder(self._path / host)
            for name, text in texts.items():
                self._write(folder / name, text)
        return authority

    def _write_server(self, host: str, options: ClusterOptions, *, has_tls: bool) -> None:
        """Write the configuration of a NATS server. It lists the services, people and nodes, so they must have their credentials by now."""
        server = self._folder(self._path / host)
        certificate, key = (server / name for name in SERVER_FILES)
        more = server_tls(certificate, key) if has_tls else ""
        more += f"http: {json.dumps(options.health)}\n" if options.health else ""
        if len(options.servers) > 1:
            named = {"cert_file": certificate, "key_file": key, "ca_file": server / AUTHORITY_FILE}
            files = ", ".join(f"{name}: {json.dumps(str(file))}" for name, file in named.items())
            more += self._routes(options.servers, f"  tls {{ {files}, timeout: 10 }}\n" if has_tls else "")
        text = nats_configuration(
            server / STORE_FOLDER, options.listen, self._proofs.server_part(server), more, name=host
        )
        self._write(server / SERVER_FILE, text)

    def _write_authority(self, folder: Path, authority: str) -> dict[str, str]:
        """Write the authority's certificate, if there is one, and return the setting that names the file."""
        if not authority:
            return {}
        self._write(folder / AUTHORITY_FILE, authority)
        return {"ca_file": str(folder / AUTHORITY_FILE)}

    def _hand_over_keys(self, kind: PartyKind, folder: Path) -> dict[str, str]:
        """Write the keys with which admission lets hosts join, and return the setting that names the file."""
        keys = self._proofs.account_authority() if kind is PartyKind.ADMISSION else None
        if keys is None:
            return {}
        self._write(folder / _ACCOUNT_AUTHORITY, msgspec.json.encode(keys).decode() + "\n")
        return {"authority_file": str(folder / _ACCOUNT_AUTHORITY)}

    def _routes(self, servers: Sequence[str], tls: str) -> str:
        """Return the configuration with which the servers of a cluster find and authenticate each other."""
        file = self._folder(self._path / servers[0]) / "routes"
        password = self._files.secret(file, "routes")
        _give_to_owner_of_folder(file)
        routes = [f"nats-route://routes:{password}@{server}:{_ROUTES_PORT}" for server in servers]
        return f"""cluster {{
  name: headrace
  listen: "0.0.0.0:{_ROUTES_PORT}"
  authorization {{ user: routes, password: {json.dumps(password)} }}
  routes: {json.dumps(routes)}
{tls}}}
"""

    def _known_or_new(self, folder: Path, wanted: Sequence[str]) -> Iterator[Path]:
        there = [path.name for path in folder.iterdir() if path.is_dir()]
        return (folder / name for name in sorted({*there, *wanted}))

    def _write_endpoint(self, folder: Path, user: str, url: str, authority: str) -> None:
        """Write the server's address and the user name for a person. If `user` is empty, the person's login name is used."""
        self._write_authority(folder, authority)
        endpoint = msgspec.json.encode(Endpoint(url=url, tree=_TREE, user=user)).decode()
        self._write(folder / ENDPOINT_FILE, endpoint + "\n")

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


def _check_loopback(health: str) -> None:
    """Check that other hosts cannot reach the server's monitoring, since NATS cannot switch off single pages of it. Raises `BadInput`."""
    if not health:
        return
    expected = (
        "a loopback address and a port, such as 127.0.0.1:8222: the server publishes all of its monitoring there, with the names "
        "of connections and streams"
    )
    try:
        address = urlsplit(f"//{health}")
        host, port = address.hostname or "", address.port
        is_loopback = host == _LOOPBACK or ip_address(host).is_loopback
    except ValueError:
        raise BadInput("--health", health, expected) from None
    if not is_loopback or not port:
        raise BadInput("--health", health, expected)


def _give_to_owner_of_folder(path: Path) -> None:
    """Give a file to the owner of its folder.

    This matters in a container, where root writes files for other users: each party has a volume that belongs to the party's own user.
    """
    owner = path.parent.stat()
    if owner.st_uid != os.geteuid():
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
