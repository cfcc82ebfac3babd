"""Keys of admission that were replaced, on a real server: until they are ended both count, and then what they signed is refused."""

from __future__ import annotations

import time
from pathlib import Path

import anyio.to_thread
import pytest

from headrace.access.account_authority import OPERATOR_INBOX, AccountAuthority, read_account_authority
from headrace.access.jwt import claims_of
from headrace.access.key_credential import KeyCredential
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import CredentialRefused, connect
from headrace.bus.account_jwt import push_account_jwt
from headrace.bus.credential_files import read_credential
from headrace.client import connect as connect_client
from headrace.errors import BadInput
from headrace_cli.agent.token import new_user_key
from headrace_cli.cluster.command import init, push, rekey
from headrace_cli.cluster.folder import ClusterFolder
from tests.integration.test_joining import is_let_in
from tests.support.secured_cluster import PATIENCE_S, Cluster, Server

pytestmark = pytest.mark.long

ANNA = Party(kind=PartyKind.PERSON, name="anna")


def authority_of(cluster: Cluster) -> AccountAuthority:
    file = cluster.folder / "admission" / "authority.json"
    return read_account_authority(file.read_text(), str(file))


def forged(authority: AccountAuthority) -> KeyCredential:
    """A credential that whoever has the file of admission gives themselves."""
    key = new_user_key()
    word = authority.user_word(key.public, "anna", ANNA, now_s=int(time.time()), lifetime_s=3_600)
    return KeyCredential(jwt=word, seed=key.seed)


async def is_taken(cluster: Cluster, credential: KeyCredential) -> bool:
    try:
        async with cluster.bus(ANNA, credential):
            return True
    except CredentialRefused:
        return False


async def hands_over(cluster: Cluster, authority: AccountAuthority, *, ahead_s: int = 0) -> None:
    """Revokes a key in the account's word, as admission does. Its clock may be ahead."""
    now_s = int(time.time()) + ahead_s
    revoked = {new_user_key().public: now_s + 3_600}
    connection = connect(
        [cluster.url],
        name="test",
        credential=authority.system,
        inbox_prefix=OPERATOR_INBOX,
        ca_file=cluster.ca_file,
        connect_timeout_s=PATIENCE_S,
    )
    async with connection as bus:
        await push_account_jwt(bus, authority.account, lambda known: authority.account_jwt(known, revoked, now_s))


def known_credential(cluster: Cluster) -> KeyCredential:
    known = read_credential(str(cluster.folder / "client" / "credential"))
    assert isinstance(known, KeyCredential)
    return known


async def test_what_former_keys_signed_counts_until_they_are_ended_and_then_never_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    old = authority_of(cluster)
    with Server(cluster.folder):
        await cluster.provision()
        with cluster.process("admission"):
            async with connect_client(state=cluster.folder / "client", timeout_s=PATIENCE_S) as client:
                await cluster.join(await cluster.token(client, "n1"), "before")
        # It is the newest word that the server has, and signed by the former key.
        await hands_over(cluster, old)
        assert await is_taken(cluster, forged(old))

    rekey(cluster.folder)
    new = authority_of(cluster)
    with Server(cluster.folder):
        assert await is_let_in(cluster, "before")
        assert await is_taken(cluster, forged(old))
        await hands_over(cluster, old)
        await hands_over(cluster, new)
        with cluster.process("admission"):
            async with connect_client(state=cluster.folder / "client", timeout_s=PATIENCE_S) as client:
                await cluster.join(await cluster.token(client, "n2"), "after")
        await hands_over(cluster, old)

    rekey(cluster.folder, end_old=True)
    with Server(cluster.folder):
        assert not await is_let_in(cluster, "before")
        assert not await is_taken(cluster, forged(old))
        with pytest.raises(CredentialRefused):
            await hands_over(cluster, old)
        async with cluster.bus(Party(kind=PartyKind.PROVISIONER)):
            pass
        await hands_over(cluster, new)
        with cluster.process("admission"):
            client_of = connect_client(state=cluster.folder / "client", timeout_s=PATIENCE_S)
            async with client_of as client, cluster.node("after", "n2"):
                await cluster.join(await cluster.token(client, "n1"), "again")

    assert new.account == old.account
    issuers = [claims_of(cluster.credential(name).jwt)["iss"] for name in ("before", "after", "again")]
    assert issuers[0] != issuers[1] == issuers[2]


def test_keys_are_ended_before_they_are_replaced_again_and_only_once(tmp_path: Path) -> None:
    def seeds() -> list[str]:
        return [path.read_text() for path in sorted((tmp_path / "authority").glob("*signing.seed"))]

    with pytest.raises(BadInput, match="no cluster with an operator"):
        rekey(tmp_path)
    init(tmp_path, url="nats://10.0.0.1:4222", operator=True)
    before = seeds()
    with pytest.raises(BadInput, match="no former keys to revoke"):
        rekey(tmp_path, end_old=True)
    rekey(tmp_path)
    replaced = seeds()
    with pytest.raises(BadInput, match="Run `headrace cluster rekey --end-old` first"):
        rekey(tmp_path)
    assert seeds() == replaced
    assert [one.split()[0] == two.split()[0] for one, two in zip(before, replaced, strict=True)] == [False, False]
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "authority").iterdir()} == {0}
    rekey(tmp_path, end_old=True)
    assert [seed.strip() for seed in seeds()] == [seed.split()[0] for seed in replaced]
    with pytest.raises(BadInput, match="no former keys to revoke"):
        rekey(tmp_path, end_old=True)


def test_the_end_of_former_keys_is_finished_by_the_next_run_if_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: ClusterFolder, host: str, *args: object, **more: object) -> None:
        if host == "b":
            raise KeyboardInterrupt
        write_server(self, host, *args, **more)  # type: ignore[arg-type]

    def configurations() -> list[str]:
        lines = [(tmp_path / host / "nats.conf").read_text().splitlines() for host in "ab"]
        return [next(line for line in each if line.startswith("operator: ")) for each in lines]

    init(tmp_path, url="nats://10.0.0.1:4222,nats://10.0.0.2:4222", operator=True, servers="a,b,c")
    rekey(tmp_path)
    replaced = configurations()
    write_server = ClusterFolder._write_server
    with monkeypatch.context() as patch:
        patch.setattr(ClusterFolder, "_write_server", interrupted)
        with pytest.raises(KeyboardInterrupt):
            rekey(tmp_path, end_old=True)
    assert configurations()[1] == replaced[1], "a server still accepts the former keys"

    rekey(tmp_path, end_old=True)

    one, other = configurations()
    assert one == other != replaced[1]


async def test_a_word_of_a_far_day_that_former_keys_signed_is_overwritten_by_a_push(tmp_path: Path) -> None:
    """Whoever had the keys could shut everybody out with it: the server keeps the latest word, and believes its signer no more."""
    cluster = Cluster(tmp_path)
    old = authority_of(cluster)
    with Server(cluster.folder):
        rekey(cluster.folder)
        rekey(cluster.folder, end_old=True)
        await anyio.to_thread.run_sync(push, cluster.folder)
        # It says the same and more.
        await hands_over(cluster, old, ahead_s=30 * 86_400)
    with Server(cluster.folder):
        assert not await is_taken(cluster, known_credential(cluster))
        await anyio.to_thread.run_sync(push, cluster.folder)
        assert await is_taken(cluster, known_credential(cluster))
        assert not await is_taken(cluster, forged(old))
