"""Keys that are held out for a pause, at a real server with an operator: each comes back at the end, unless it was revoked."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from headrace.access.account_authority import (
    OPERATOR_INBOX,
    AccountAuthority,
    jwt_lookup_subject,
    jwt_update_subject,
)
from headrace.access.jwt import claims_of, revoked_by, signed, system_claims
from headrace.access.nkeys import KeyKind, SigningKey
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import Bus, BusClosed, CredentialRefused, connect
from headrace.ids import NodeName, UserName
from headrace.runtime.clock import SystemClock
from headrace.runtime.copied_bucket import CopiedBucket
from headrace.runtime.settings import load
from headrace.wire import subjects
from headrace_admission.floods.flood_watch import FloodWatch
from headrace_admission.nodes.join_tokens import Keys, PersonToken
from headrace_admission.nodes.revocation import Revocations
from headrace_admission.settings import AdmissionSettings
from headrace_cli.persons.users import remove as remove_user
from tests.support.secured_cluster import PATIENCE_S, Cluster, Server

pytestmark = pytest.mark.long

PAUSE_S = 4
PEOPLE = ("anna", "ben")


class Admission:
    """The part of admission that holds out keys, as each process of admission has it."""

    def __init__(self, cluster: Cluster, bus: Bus, keys: Keys) -> None:
        self.settings = load(
            AdmissionSettings,
            "admission",
            cluster.folder / "admission" / "settings.toml",
            {"HEADRACE_ADMISSION_FLOOD_PAUSE_MS": str(PAUSE_S * 1000)},
        )
        self._cluster = cluster
        self.keys = keys
        self.revocations = Revocations(bus, keys, self.settings, SystemClock(), cluster.account_authority())

    async def hold_out(self, name: str) -> float:
        """Returns the time at which the pause ends."""
        cluster = self._cluster
        key = claims_of(cluster.issued(place_of(name)).jwt)["sub"]
        authority = cluster.account_authority().system
        async with connect(
            [cluster.url], name="test", credential=authority, inbox_prefix=OPERATOR_INBOX, ca_file=cluster.ca_file
        ) as system:
            held_out = await self.revocations.hold_out(system, key, name, "of a test")
        assert held_out is not None
        return held_out.until_s + 1


def place_of(name: str) -> str:
    return f"client/{'people' if name in PEOPLE else 'nodes'}/{name}/credential"


@asynccontextmanager
async def admissions(path: Path) -> AsyncIterator[tuple[Cluster, Admission, Admission]]:
    """A cluster whose admission is replaced: the process before, and the process after."""
    cluster = Cluster(path, nodes=["n1"], people=PEOPLE, administrators="eve")
    with Server(cluster.folder):
        await cluster.provision()
        async with cluster.bus(Party(kind=PartyKind.ADMISSION)) as bus:
            keys = Keys(await CopiedBucket.open(bus, subjects.KEYS_BUCKET))
            yield cluster, Admission(cluster, bus, keys), Admission(cluster, bus, keys)


async def is_let_in(cluster: Cluster, name: str) -> bool:
    kind = PartyKind.PERSON if name in PEOPLE else PartyKind.NODE
    try:
        async with cluster.bus(Party(kind=kind, name=name, tree="default"), cluster.issued(place_of(name))):
            return True
    except (CredentialRefused, BusClosed):
        return False


async def until_let_in(cluster: Cluster, name: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not await is_let_in(cluster, name):  # noqa: ASYNC110
            await anyio.sleep(0.1)


async def test_a_key_comes_back_at_the_end_of_its_pause_though_admission_was_replaced(tmp_path: Path) -> None:
    async with admissions(tmp_path) as (cluster, before, after), anyio.create_task_group() as tasks:
        party = Party(kind=PartyKind.PERSON, name="anna")
        async with cluster.bus(party, cluster.issued(place_of("anna"))) as live:
            until_s = await before.hold_out("anna")
            with anyio.fail_after(PATIENCE_S):
                await live.wait_closed()
        assert not await is_let_in(cluster, "anna")
        assert await is_let_in(cluster, "ben")

        # Without admission the server does not let the key in by itself, because it compares with the time of the signature.
        await anyio.sleep(until_s - time.time())
        assert not await is_let_in(cluster, "anna")

        tasks.start_soon(after.revocations.keep)
        await until_let_in(cluster, "anna")
        assert after.revocations.trouble() == ""
        tasks.cancel_scope.cancel()


async def test_a_replaced_admission_goes_on_with_the_pause_and_the_next_pause_is_longer(tmp_path: Path) -> None:
    async with admissions(tmp_path) as (cluster, before, after), anyio.create_task_group() as tasks:
        first_s = await before.hold_out("anna") - time.time()
        tasks.start_soon(after.revocations.keep)
        with anyio.fail_after(PATIENCE_S):
            while "anna is held out until " not in after.revocations.trouble():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert after.revocations.trouble().endswith("UTC: of a test")
        assert not await is_let_in(cluster, "anna")

        await until_let_in(cluster, "anna")
        assert await after.hold_out("anna") - time.time() > 3 * first_s
        tasks.cancel_scope.cancel()


async def test_the_end_of_a_pause_lifts_no_revocation_that_came_in_between(tmp_path: Path) -> None:
    async with admissions(tmp_path) as (cluster, admission, _), anyio.create_task_group() as tasks:
        until_s = max([await admission.hold_out(name) for name in ("anna", "ben", "n1")])
        # What an administrator revokes: a person by the folder of the cluster, a node by admission.
        removed = cluster.issued(place_of("anna"))
        await anyio.to_thread.run_sync(lambda: remove_user("anna", cluster=cluster.folder))
        node = claims_of(cluster.issued(place_of("n1")).jwt)["sub"]
        await admission.revocations.revoke(NodeName("n1"), node)
        tasks.start_soon(admission.revocations.keep)

        await until_let_in(cluster, "ben")
        assert time.time() > until_s - 1
        (cluster.folder / place_of("anna")).parent.mkdir()
        (cluster.folder / place_of("anna")).write_text(removed.text())
        assert not await is_let_in(cluster, "anna")
        assert not await is_let_in(cluster, "n1")
        tasks.cancel_scope.cancel()


async def test_tokens_stay_while_their_person_is_held_out_but_a_token_that_floods_is_revoked(tmp_path: Path) -> None:
    async with admissions(tmp_path) as (cluster, admission, _):
        own, flooding = (claims_of(cluster.issued(place_of(name)).jwt)["sub"] for name in PEOPLE)
        now_ms, day_ms = int(time.time() * 1000), 86_400_000
        kept = SigningKey(KeyKind.USER, bytes(32)).public
        token = PersonToken(UserName("anna"), "", False, now_ms - day_ms, now_ms + day_ms, own)
        await admission.keys.put(kept, token)
        await admission.keys.put(flooding, token)

        await admission.hold_out("anna")
        await admission.hold_out("ben")
        await admission.revocations.send()

        records = await admission.keys.records()
        assert records[kept] == token
        assert records[flooding] == token.revoked
        authority = cluster.account_authority()
        async with connect(
            [cluster.url], name="t", credential=authority.system, inbox_prefix=OPERATOR_INBOX, ca_file=cluster.ca_file
        ) as system:
            word = await system.request(jwt_lookup_subject(authority.account), b"", timeout_s=PATIENCE_S)
        revoked = revoked_by(claims_of(word.decode()))
        assert revoked[flooding] == token.revoked.until_s
        assert kept not in revoked
        assert own in revoked


async def watch(admission: Admission, authority: AccountAuthority) -> FloodWatch:
    """A watch that has looked at the server once."""
    watch = FloodWatch(admission.settings, SystemClock(), authority, admission.revocations)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.keep)
        with anyio.fail_after(PATIENCE_S):
            while not watch.trouble() and not watch.looks:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    return watch


async def test_an_older_cluster_ends_no_floods_until_it_is_made_again(tmp_path: Path) -> None:
    async with admissions(tmp_path) as (cluster, admission, _):
        authority = cluster.account_authority()
        # An earlier release gave admission the rights that the operator has.
        seed = SigningKey.from_seed((cluster.folder / "authority" / "system.seed").read_text().strip())
        own = SigningKey.from_seed(authority.system.seed)
        rights = (jwt_update_subject(authority.account), jwt_lookup_subject(authority.account))
        claims = system_claims(own.public, "admission", rights, OPERATOR_INBOX)
        older = msgspec.structs.replace(authority.system, jwt=signed(seed, claims, int(time.time())))
        (cluster.folder / "authority" / "admission").write_text(older.text())
        before = msgspec.structs.replace(authority, system=older)

        blind = await watch(admission, before)
        assert "`headrace cluster init`" in blind.trouble()

        cluster.init()
        after = cluster.account_authority()
        assert after.system.seed == older.seed
        assert (await watch(admission, after)).trouble() == ""
