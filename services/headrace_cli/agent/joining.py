"""Let this host join: make its key, have admission bind the key to the node, and write the agent's files.

The folder of the node then contains `credential`, `ca.pem` and `settings.toml`. An interrupted attempt leaves
`joining.seed`, and the next attempt continues with that key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import anyio
import msgspec

from headrace.access.jwt import claims_of
from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import SigningKey
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import BusError, CredentialRefused, connect
from headrace.client.asking import Asker
from headrace.client.errors import NotAdmitted, NotRunning, Unanswered
from headrace.client.places.endpoint import AUTHORITY_FILE, CREDENTIAL_FILE
from headrace.durations import format_duration
from headrace.errors import BadInput
from headrace.files.durable import make_folder_durably, replace_durably
from headrace.files.foreign_folder import refuse_foreign_folder
from headrace.runtime.clock import SystemClock
from headrace.server_urls import parse_server_urls
from headrace.wire import subjects
from headrace.wire.joining import Join, Joined, proof_of
from headrace_cli.agent.pinning import shown_authority
from headrace_cli.agent.token import JoinToken, new_user_key
from headrace_cli.up.configuration import to_toml

#: File name of the agent's settings in the folder of the node.
SETTINGS_FILE: Final = "settings.toml"
_PENDING_SEED_FILE: Final = "joining.seed"
_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 30.0


class JoinedHost(msgspec.Struct, frozen=True):
    """The node that this host has become."""

    node: str
    tree: str
    settings: str


def join_host(token: JoinToken, url: str, folder: Path, users: str = "", owners: Collection[int] = ()) -> JoinedHost:
    """Join as a node and write the agent's files, with the setting `users` unless it is empty.

    An existing folder may belong to the accounts `owners` too, which run the agent.

    Raises `BadInput`, `NotRunning`, `NotAdmitted`, `Refused`, `Unanswered`, OSError.
    """
    clock = SystemClock()
    urls = parse_server_urls(url, place="URL")
    if token.authority_sha256 and not all(each.startswith("tls://") for each in urls):
        raise BadInput(
            "URL", url, "an address with tls://, because the token names the certificate authority of the server"
        )
    refuse_foreign_folder(folder, "--folder", owners)
    make_folder_durably(folder)
    ca_file = ""
    if token.authority_sha256:
        ca_file = str(folder / AUTHORITY_FILE)
        replace_durably(folder / AUTHORITY_FILE, shown_authority(url, token.authority_sha256))
    key = _pending_key(folder)
    joined = anyio.run(_ask, token, urls, ca_file, key, clock)
    replace_durably(folder / CREDENTIAL_FILE, KeyCredential(jwt=joined.jwt, seed=key.seed).text())
    agent = {"node": joined.node, "state_folder": str(folder), "credential_file": str(folder / CREDENTIAL_FILE)}
    more = {"ca_file": ca_file, "users": users}
    agent |= {name: value for name, value in more.items() if value}
    tables = {"common": {"nats_url": url, "tree": joined.tree}, "agent": agent}
    replace_durably(folder / SETTINGS_FILE, to_toml(tables))
    (folder / _PENDING_SEED_FILE).unlink(missing_ok=True)
    return JoinedHost(joined.node, joined.tree, str(folder / SETTINGS_FILE))


async def _ask(token: JoinToken, urls: list[str], ca_file: str, key: SigningKey, clock: SystemClock) -> Joined:
    host = SigningKey.from_seed(token.credential.seed).public
    connection = connect(
        urls,
        name=f"headrace agent join of {token.node}",
        credential=token.credential,
        inbox_prefix=Party(kind=PartyKind.HOST, name=host).inbox,
        connect_timeout_s=_CONNECT_S,
        ca_file=ca_file,
    )
    expires_ms = claims_of(token.credential.jwt)["exp"] * 1000
    with _told(", ".join(urls), lambda: clock.wall_ms() - expires_ms):
        async with connection as bus:
            asker = Asker(bus, clock, lambda _: subjects.join(host), _ANSWER_S)
            return await asker.ask("join", Join(key.public, key.sign(proof_of(host))), Joined)


@contextlib.contextmanager
def _told(where: str, expired_since_ms: Callable[[], int]) -> Iterator[None]:
    """Turn an error of the connection or the request into `NotAdmitted` or `NotRunning`, with an explanation.

    An `Unanswered` is raised unchanged if the join may have happened, or if the token has not expired.
    """
    try:
        yield
    except (BusError, Unanswered) as error:
        if isinstance(error, Unanswered) and error.maybe_done:
            raise
        expired_ms = expired_since_ms()
        if isinstance(error, CredentialRefused) or expired_ms >= 0:
            # The server's clock decides whether the token has expired. The clock of this host may be wrong and is used
            # only for the explanation.
            why = f"the token expired {format_duration(expired_ms)} ago" if expired_ms >= 0 else str(error)
            raise NotAdmitted(where, f"{why}; `headrace node token` makes a new token") from error
        if isinstance(error, Unanswered):
            raise
        raise NotRunning(where, str(error)) from error


def _pending_key(folder: Path) -> SigningKey:
    """Return the key of an interrupted attempt, which may have used the token already, or a new key."""
    file = folder / _PENDING_SEED_FILE
    with contextlib.suppress(FileNotFoundError):
        return SigningKey.from_seed(file.read_text(encoding="ascii").strip())
    key = new_user_key()
    replace_durably(file, key.seed + "\n")
    return key
