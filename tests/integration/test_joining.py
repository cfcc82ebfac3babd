"""Hosts that join by a token, on a real server with an operator and TLS, with admission as a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from headrace.access.account_authority import OPERATOR_INBOX
from headrace.access.jwt import claims_of
from headrace.access.key_credential import KeyCredential
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import BusClosed, BusError, CredentialRefused, Message, NoResponders, PermissionRefused, connect
from headrace.bus.account_jwt import push_account_jwt
from headrace.bus.credential_files import read_credential
from headrace.client import Client, NotAdmitted, Refused, Unanswered
from headrace.client import connect as connect_client
from headrace.errors import BadInput
from headrace.ids import NodeName, OperationId
from headrace.wire import subjects
from headrace.wire.codec import encode
from headrace.wire.joining import MakeToken, Renew
from headrace.wire.logs import ReadLog
from headrace.wire.nodes import Enrol, GivenUpNode, NodeChange, NodeTerms
from headrace_cli.agent.joining import _told, join_host
from headrace_cli.agent.pinning import sha256_of
from headrace_cli.agent.token import new_user_key, read_token
from headrace_cli.cluster.command import push
from headrace_cli.cluster.tls import init as init_tls
from tests.support.power import Disk
from tests.support.secured_cluster import PATIENCE_S, Cluster, Server


@asynccontextmanager
async def running(path: Path, **settings: str) -> AsyncIterator[tuple[Cluster, Client]]:
    """A cluster with admission, and a client once all requests are served."""
    cluster = Cluster(path, administrators="anna")
    with Server(cluster.folder):
        await cluster.provision()
        with cluster.process("admission", environment=settings):
            async with connect_client(state=cluster.folder / "client", user="anna", timeout_s=PATIENCE_S) as client:

                async def serves() -> bool:
                    # An answer to one request would not tell that the others are served: they follow one by one.
                    return "admission serves" in cluster.log("admission")

                await until(serves)
                yield cluster, client


async def _nothing() -> None:
    pass


@asynccontextmanager
async def giving_up(cluster: Cluster, meanwhile: Callable[[], Awaitable[object]] = _nothing) -> AsyncIterator[None]:
    """An allocator that counts on no node any more. `meanwhile` runs before each answer."""

    async def give_up(message: Message) -> bytes:
        await meanwhile()
        return encode(GivenUpNode(NodeName("n1"), 0))

    async with cluster.bus(Party(kind=PartyKind.ALLOCATOR, tree="default")) as bus:
        await bus.serve(subjects.give_up_node("default"), give_up)
        yield


async def until(what: Callable[[], Awaitable[bool]], *, value: bool = True) -> None:
    """Looks again and again at what happens in another process."""
    with anyio.fail_after(PATIENCE_S):
        while await what() is not value:  # noqa: ASYNC110
            await anyio.sleep(0.1)


def freeze(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


async def is_let_in(cluster: Cluster, folder: str = "host") -> bool:
    try:
        async with cluster.node(folder):
            return True
    except (CredentialRefused, BusClosed):
        # It may be cut off while it comes in.
        return False


async def revoke_words_before(cluster: Cluster, key: str, second: int) -> None:
    """Has the server end the connections of what was signed for a key before a second, and let none of it in."""
    authority = cluster.account_authority()
    connection = connect(
        [cluster.url], name="test", credential=authority.system, inbox_prefix=OPERATOR_INBOX, ca_file=cluster.ca_file
    )
    async with connection as system:
        assert await push_account_jwt(
            system, authority.account, lambda known: authority.account_jwt(known, {key: second - 1}, second - 1)
        )


async def test_a_token_lets_one_host_join_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        token = await cluster.token(client, terms=NodeTerms(tags=["gpu"]))
        joined = await cluster.join(token)

        assert (joined.node, joined.tree) == ("n1", "default")
        folder = tmp_path / "host"
        assert {path.name for path in folder.iterdir()} == {"ca.pem", "credential", "settings.toml"}
        assert {path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())} == {0}
        async with cluster.node() as bus:
            with pytest.raises(PermissionRefused):
                await bus.request(subjects.heartbeat("default", "n2"), b"", timeout_s=5)
        with pytest.raises(Refused, match="token for n1 is used already"):
            await cluster.join(token, "another")
        host = Party(kind=PartyKind.HOST, name=claims_of(token.credential.jwt)["sub"])
        async with cluster.bus(host, token.credential) as bus:
            for subject in (
                subjects.join("U" * 56),
                subjects.enrol("n1"),
                subjects.renew("n1"),
                "$SYS.REQ.SERVER.PING",
            ):
                with pytest.raises(PermissionRefused):
                    await bus.request(subject, b"", timeout_s=5)
        told = cluster.log("admission")
    for secret in (token.credential.seed, token.credential.jwt, cluster.credential().seed, cluster.credential().jwt):
        assert secret not in told


async def test_a_host_whose_answer_was_lost_joins_with_the_key_that_it_had_made(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        token = await cluster.token(client)
        seed = new_user_key().seed
        (tmp_path / "host").mkdir(mode=0o700)
        (tmp_path / "host" / "joining.seed").write_text(seed)
        await cluster.join(token)
        (tmp_path / "host" / "joining.seed").write_text(seed)
        await cluster.join(token)

        assert cluster.credential().seed == seed
        assert await is_let_in(cluster)


async def test_a_loss_of_power_takes_nothing_of_a_join_whose_token_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, host = Disk(monkeypatch), tmp_path / "hosts" / "host"
    async with running(tmp_path) as (cluster, client):
        token = await cluster.token(client)
        await cluster.join(token, "hosts/host")
        assert disk.has_folder(host.parent)
        assert disk.has_folder(host)
        for name in ("credential", "ca.pem", "settings.toml"):
            assert disk.after_loss(host / name) == (host / name).read_bytes()
        # One that has not heard the answer yet has the key that the token was used for.
        with pytest.raises(Refused):
            await cluster.join(token, "hosts/host")
        assert disk.after_loss(host / "joining.seed") == (host / "joining.seed").read_bytes() != b""


async def test_an_expired_token_is_refused_by_words(tmp_path: Path) -> None:
    async with running(tmp_path, HEADRACE_ADMISSION_TOKEN_MS="1000") as (cluster, client):
        token = await cluster.token(client)
        party = Party(kind=PartyKind.HOST, name=claims_of(token.credential.jwt)["sub"])
        # The server itself ends it, on a busy machine before it is taken into use.
        with contextlib.suppress(BusError), anyio.fail_after(PATIENCE_S):
            async with cluster.bus(party, token.credential) as bus:
                await bus.wait_closed()
        with pytest.raises(NotAdmitted, match=r"expired .* ago; `headrace node token` makes a new token"):
            await cluster.join(token)
    assert not (tmp_path / "host" / "credential").exists()


@pytest.mark.parametrize(("maybe_done", "told"), [(False, NotAdmitted), (True, Unanswered)])
def test_a_token_that_expires_while_it_is_used_is_refused_by_words_unless_it_may_have_been_used(
    maybe_done: bool, told: type[Exception]
) -> None:
    with pytest.raises(told), _told("tls://127.0.0.1:4222", lambda: 1_000):
        raise Unanswered("join", 0.0, "the server closed the connection", maybe_done=maybe_done)


async def test_a_server_that_another_authority_vouches_for_is_told_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        token = await cluster.token(client)
        init_tls(tmp_path / "others", "127.0.0.1")
        other = sha256_of((tmp_path / "others" / "ca.pem").read_text())
        with pytest.raises(NotAdmitted, match=f"no certificate authority with SHA-256 {other}"):
            await cluster.join(msgspec.structs.replace(token, authority_sha256=other))
        with pytest.raises(BadInput, match="tls://"):
            await anyio.to_thread.run_sync(join_host, token, cluster.url.replace("tls", "nats"), tmp_path / "host")
        await cluster.join(token)  # it is not used up


async def test_only_an_administrator_makes_tokens_and_only_where_hosts_can_join(tmp_path: Path) -> None:
    async with running(tmp_path, HEADRACE_ADMINISTRATORS="ben") as (cluster, client):
        with pytest.raises(Refused, match="anna may not let a host join as node n1"):
            await cluster.token(client)
        async with connect_client(state=cluster.folder / "client", user="ben") as ben:
            with pytest.raises(Refused, match="node name"):
                await ben.hosts.make_token(MakeToken(NodeName("n.1"), new_user_key().public))
            with pytest.raises(Refused, match="complete public key of a NATS user"):
                await ben.hosts.make_token(MakeToken(NodeName("n1"), "UNKNOWN"))
            await cluster.token(ben)
    without = tmp_path / "without"
    without.mkdir()
    async with running(without, HEADRACE_ADMISSION_AUTHORITY_FILE="") as (cluster, client):
        with pytest.raises(Refused, match="authority_file"):
            await cluster.token(client)


async def test_a_new_token_gives_the_name_to_another_host_and_shuts_the_one_before_out(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        token = await cluster.token(client)
        await cluster.join(token, "before")
        async with cluster.node("before") as before:
            await cluster.join(await cluster.token(client), "after")
            with anyio.fail_after(PATIENCE_S):
                await before.wait_closed()
        assert not await is_let_in(cluster, "before")
        # Its token has not expired, but the newer token has replaced it.
        (tmp_path / "before" / "joining.seed").write_text(cluster.credential("before").seed)
        with pytest.raises(Refused, match="replaced by a newer token"):
            await cluster.join(token, "before")
        assert await is_let_in(cluster, "after")


async def test_an_older_token_does_not_bring_back_its_terms(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        wide, narrow = [await cluster.token(client, terms=NodeTerms(gpu=gpu)) for gpu in (8, 0)]
        seed = new_user_key().seed
        (tmp_path / "host").mkdir(mode=0o700)
        for token in (wide, narrow):
            (tmp_path / "host" / "joining.seed").write_text(seed)
            await cluster.join(token)
        (tmp_path / "host" / "joining.seed").write_text(seed)
        with pytest.raises(Refused, match="replaced by a newer token"):
            await cluster.join(wide)
        await cluster.join(narrow)


async def test_a_newer_token_outlives_the_use_of_an_older_token(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        older, newer = [await cluster.token(client) for _ in range(2)]
        await cluster.join(older, "before")
        await cluster.join(newer, "after")
        assert await is_let_in(cluster, "after")
        assert not await is_let_in(cluster, "before")


async def test_a_host_that_joins_while_its_node_is_removed_is_out_too(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        await cluster.join(await cluster.token(client), "before")
        token, unused = [await cluster.token(client) for _ in range(2)]
        async with giving_up(cluster, lambda: cluster.join(token, "meanwhile")):
            await client.change_node("n1", NodeChange.REMOVE)
        assert not await is_let_in(cluster, "before")
        assert not await is_let_in(cluster, "meanwhile")
        with pytest.raises(Refused, match="ended together with its node"):
            await cluster.join(unused, "later")


async def test_a_removed_node_is_cut_off_and_stays_out_whatever_is_started_anew(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, administrators="anna")
    with cluster.process("admission") as admission:
        with Server(cluster.folder):
            await cluster.provision()
            async with connect_client(state=cluster.folder / "client", timeout_s=PATIENCE_S) as client:
                await cluster.join(await cluster.token(client))
                async with cluster.node() as live, giving_up(cluster), anyio.create_task_group() as tasks:
                    freeze(admission)
                    tasks.start_soon(client.change_node, "n1", NodeChange.REMOVE)
                    await anyio.wait_all_tasks_blocked()
                    admission.send_signal(signal.SIGCONT)
                    with anyio.fail_after(PATIENCE_S):
                        await live.wait_closed()
            assert not await is_let_in(cluster)
            # Who administers the cluster revokes another, and undoes nothing.
            (cluster.folder / "client" / "nodes" / "old").rename(tmp_path / "old")
            cluster.init()
            await anyio.to_thread.run_sync(push, cluster.folder)
            assert not await is_let_in(cluster)
        # The server forgets what it was told, and finds the word of the first day in its configuration.
        shutil.rmtree(cluster.folder / "nats" / "accounts")
        with Server(cluster.folder):
            await until(lambda: is_let_in(cluster), value=False)


async def test_a_node_that_lives_and_runs_jobs_is_shut_out_at_once_and_comes_back_by_a_new_token(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (cluster, client):
        await cluster.join(await cluster.token(client))
        async with cluster.node() as live:
            # Its allocator is not asked, and could say no.
            await client.change_node("n1", NodeChange.SHUT_OUT)
            with anyio.fail_after(PATIENCE_S):
                await live.wait_closed()
        assert not await is_let_in(cluster)
        await cluster.join(await cluster.token(client), "again")
        assert await is_let_in(cluster, "again")
        assert not await is_let_in(cluster)


async def test_a_node_renews_its_credential_over_a_new_connection_before_it_is_over(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        joined = await cluster.join(await cluster.token(client))
        key, party = cluster.credential(), Party(kind=PartyKind.NODE, name="n1", tree="default")
        # More than half of its time is over, and what is left outlasts the test.
        now_s = int(time.time())
        word = cluster.account_authority().user_word(
            claims_of(key.jwt)["sub"], "agent-n1", party, now_s=now_s - 3_600, lifetime_s=5_000
        )
        first = msgspec.structs.replace(key, jwt=word)
        (tmp_path / "host" / "credential").write_text(first.text())
        with cluster.process("agent", Path(joined.settings)) as agent:

            async def is_renewed() -> bool:
                return "credential renewed" in cluster.log("agent")

            await until(is_renewed)
            assert agent.poll() is None
            assert claims_of(cluster.credential().jwt)["iat"] >= now_s
            assert cluster.credential().seed == first.seed
            # The connection is that of the new word: it is not cut off with the former one, and what it listens on came with it.
            await revoke_words_before(cluster, claims_of(word)["sub"], now_s)
            anna = Party(kind=PartyKind.PERSON, name="anna")
            known = read_credential(str(cluster.folder / "client" / "credential"))
            assert isinstance(known, KeyCredential)
            async with cluster.bus(anna, known) as bus:
                question = encode(ReadLog(OperationId("op-00000001"), 0))

                async def answers() -> bool:
                    # It may be between two connections.
                    with contextlib.suppress(NoResponders):
                        return bool(await bus.request(subjects.user("anna", "job.logs.n1"), question, timeout_s=10))
                    return False

                await until(answers)
    told = cluster.log("agent")
    assert "bus closed for good" not in told
    assert told.count("credential renewed") == 1
    assert "not used for a new connection yet" not in told
    assert cluster.credential().seed not in told
    assert cluster.credential().jwt not in told


async def test_a_node_that_joined_by_no_token_gets_no_new_word(tmp_path: Path) -> None:
    async with running(tmp_path) as (cluster, client):
        party = Party(kind=PartyKind.NODE, name="old", tree="default")
        known = read_credential(str(cluster.folder / "client" / "nodes" / "old" / "credential"))
        assert isinstance(known, KeyCredential)
        async with cluster.bus(party, known) as bus:
            answer = await bus.request(
                subjects.renew("old"), encode(Renew(NodeName("old"), claims_of(known.jwt)["sub"])), timeout_s=5
            )
            assert b"not_found" in answer
            await bus.request(subjects.enrol("old"), encode(Enrol(NodeName("old"))), timeout_s=5)
        with pytest.raises(Refused, match="expected a node that joined by a token"):
            await client.change_node("old", NodeChange.SHUT_OUT)
        # Its credential would outlast that of whoever joined under its name.
        with pytest.raises(Refused, match="node old is enrolled with a credential that did not come from a token"):
            await cluster.token(client, "old")


@pytest.mark.parametrize("text", ["", "headrace-join-", "headrace-join-AAAA", "Sesame", "headrace-join-\u00e9"])
def test_what_is_no_token_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(BadInput, match="headrace node token") as refused:
        read_token(text)
    assert not text or text not in str(refused.value)
