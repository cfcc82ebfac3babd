"""Groups in credentials: they count while the person is connected with the credential, on a real server with an operator."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from headrace.access import jwt
from headrace.access.account_authority import AccountAuthority
from headrace.access.key_credential import PERSON_LOGIN, KeyCredential
from headrace.access.nkeys import KeyKind, SigningKey
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.access.token_text import read_token_text
from headrace.bus import CredentialRefused, RequestTimeout
from headrace.client import Client, NotAdmitted, Refused
from headrace.client import connect as connect_client
from headrace.errors import BadInput
from headrace.ids import GroupName
from headrace.wire.access_tokens import CreateToken, TokenCreated, proof_of
from headrace.wire.groups import GroupOfPerson, GroupSource
from headrace_admission.groups.lookups import GroupLookups
from headrace_admission.nodes.keys_file import read_authority
from headrace_admission.settings import AdmissionSettings
from headrace_cli.agent.token import new_user_key
from headrace_cli.persons.login import _SOURCES
from headrace_cli.persons.users import add as add_user
from headrace_cli.persons.users import read_groups
from headrace_cli.persons.users import remove as remove_user
from tests.support.clocks import HandClock
from tests.support.secured_cluster import PATIENCE_S, Cluster, Server

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, people=["ben"], administrators="eve")
    add_user("ada", cluster=made.folder, groups="students,ml")
    with Server(made.folder):
        anyio.run(made.provision)
        yield made


@contextmanager
def admission(cluster: Cluster) -> Iterator[None]:
    """Admission as a process, once it serves."""
    before = cluster.log("admission").count("admission serves") if (cluster.path / "admission.log").exists() else 0
    with cluster.process("admission"):
        deadline_s = time.monotonic() + PATIENCE_S
        while cluster.log("admission").count("admission serves") == before:
            assert time.monotonic() < deadline_s, cluster.log("admission")
            time.sleep(0.02)
        yield


@asynccontextmanager
async def connected(cluster: Cluster, person: str, credential: KeyCredential | None = None) -> AsyncIterator[Client]:
    folder = cluster.folder / "client" / "people" / person
    file = folder / "credential"
    if credential is not None:
        file = cluster.path / f"{person}.credential"
        file.write_text(credential.text())
        file.chmod(0o600)
    ca_file = Path(cluster.ca_file)
    async with connect_client(
        url=cluster.url, credential_file=file, ca_file=ca_file, user=person, timeout_s=PATIENCE_S
    ) as client:
        yield client


async def groups_of(client: Client) -> list[str]:
    groups = (await client.persons.rights()).groups
    assert {each.source for each in groups} <= {GroupSource.LOGIN}
    return [each.name for each in groups]


async def until_groups(client: Client, expected: list[str]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while await groups_of(client) != expected:  # noqa: ASYNC110 - nobody is told
            await anyio.sleep(0.05)


def signed(cluster: Cluster, name: str, *groups: str, lifetime_s: int = 3_600) -> KeyCredential:
    """A credential as the operator signs it, which ends."""
    key = new_user_key()
    party = Party(kind=PartyKind.PERSON, name="ada", groups=tuple(map(GroupName, groups)))
    word = cluster.account_authority().user_word(key.public, name, party, now_s=int(time.time()), lifetime_s=lifetime_s)
    return KeyCredential(jwt=word, seed=key.seed)


async def test_groups_count_from_the_first_request_and_survive_a_restart_of_admission(cluster: Cluster) -> None:
    for _ in range(2):
        with admission(cluster):
            async with connected(cluster, "ada") as ada, connected(cluster, "ben") as ben:
                assert await groups_of(ada) == ["students", "ml"]
                assert await groups_of(ben) == []
                token = read_token_text((await ada.tokens.create()).text).credential
                assert jwt.groups_in(jwt.claims_of(token.jwt)) == ("students", "ml")
            async with connected(cluster, "ada", token) as program:
                assert await groups_of(program) == ["students", "ml"]


async def test_with_other_groups_the_former_credential_is_revoked(cluster: Cluster) -> None:
    former = cluster.issued("client/people/ada/credential")
    with admission(cluster):
        async with connected(cluster, "ada", former) as ada:
            assert await groups_of(ada) == ["students", "ml"]
            await anyio.to_thread.run_sync(lambda: add_user("ada", cluster=cluster.folder, groups="staff"))
            async with connected(cluster, "ada") as anew:
                await until_groups(anew, ["staff"])
        with pytest.raises((NotAdmitted, CredentialRefused)):
            async with connected(cluster, "ada", former):
                pass
        # Without --groups everything stays, and so does the credential.
        kept = cluster.issued("client/people/ada/credential")
        add_user("ada", cluster=cluster.folder)
        cluster.init()
        assert cluster.issued("client/people/ada/credential").jwt == kept.jwt
        await anyio.to_thread.run_sync(lambda: remove_user("ada", cluster=cluster.folder))
        await anyio.to_thread.run_sync(lambda: add_user("ada", cluster=cluster.folder))
        async with connected(cluster, "ada") as anew:
            await until_groups(anew, [])


async def test_a_revoked_credential_makes_no_token_with_its_groups(cluster: Cluster) -> None:
    former, key = cluster.issued("client/people/ada/credential"), new_user_key()
    await anyio.to_thread.run_sync(lambda: add_user("ada", cluster=cluster.folder, groups=""))
    proof = proof_of("ada", key.public)
    own_proof = SigningKey.from_seed(former.seed).sign(proof)
    with admission(cluster):
        async with connected(cluster, "ada") as ada:
            request = CreateToken(key.public, key.sign(proof), former.jwt, own_proof)
            with pytest.raises(Refused, match="revoked credential"):
                await ada._asker.ask("token.create", request, TokenCreated)
            token = read_token_text((await ada.tokens.create()).text).credential
            assert jwt.groups_in(jwt.claims_of(token.jwt)) == ()


async def test_groups_of_a_credential_end_with_it(cluster: Cluster) -> None:
    plain = signed(cluster, f"{PERSON_LOGIN}ada")
    with admission(cluster):
        async with connected(cluster, "ada", plain) as ada:
            assert await groups_of(ada) == []
            async with cluster.bus(
                Party(kind=PartyKind.PERSON, name="ada"), signed(cluster, f"{PERSON_LOGIN}ada", "guests", lifetime_s=3)
            ):
                await until_groups(ada, ["guests"])
                await until_groups(ada, [])


async def test_groups_do_not_count_while_no_server_answers() -> None:
    clock, answers = HandClock(), [True, False, True]
    taken: dict[str, tuple[GroupName, ...] | None] = {}

    async def look_up(user: str) -> tuple[GroupName, ...]:
        if not answers.pop(0):
            raise RequestTimeout("no answer")
        return (GroupName("ml"),)

    async with anyio.create_task_group() as tasks:
        groups = GroupLookups(clock, tasks, taken.__setitem__, look_up, longest_s=1.0, where="connections")
        for passed_s, known in ((0.0, ("ml",)), (0.5, ("ml",)), (1.0, None), (0.1, ("ml",))):
            clock.now_s += passed_s
            await groups.know("ada")
            assert taken == {"ada": known}


def test_only_credentials_that_the_account_signed_for_the_person_name_groups(cluster: Cluster) -> None:
    authority = cluster.account_authority()
    own = signed(cluster, f"{PERSON_LOGIN}ada", "ml").jwt
    claims = jwt.claims_of(own)
    impostor = SigningKey(KeyKind.ACCOUNT, bytes(range(32)))
    head, _, signature = own.split(".")
    more = jwt.base64_of(jwt._json({**claims, "nats": {**claims["nats"], "tags": ["group:staff"]}}))

    assert authority.groups_in(own, "ada") == ("ml",)
    assert authority.groups_in(cluster.issued("client/people/ada/credential").jwt, "ada") == ("students", "ml")
    assert authority.groups_in(own, "ben") == ()
    assert authority.groups_in(signed(cluster, "headrace", "ml").jwt, "ada") == ()
    assert authority.groups_in(jwt.signed(impostor, claims, 1), "ada") == ()
    assert authority.groups_in(f"{head}.{more}.{signature}", "ada") == ()
    with pytest.raises(BadInput):
        AccountAuthority.groups_in(authority, "none", "ada")
    assert jwt.groups_in({"nats": {"tags": ["group:a b", "other", "group:x", "group:x"]}}) == ("x",)


def test_groups_of_a_login_are_bounded_and_need_an_operator(tmp_path: Path) -> None:
    assert read_groups(" ml, students,ml") == ("ml", "students")
    assert read_groups("") == ()
    with pytest.raises(BadInput, match="--groups: 'a b'"):
        read_groups("a b")
    with pytest.raises(BadInput, match="there are 17 groups; a credential names at most 16"):
        read_groups(",".join(f"g{number}" for number in range(17)))
    with pytest.raises(BadInput, match="groups_of_login"):
        read_authority(AdmissionSettings(groups_of_login=True))


def test_a_group_in_several_places_counts_for_the_first(cluster: Cluster) -> None:
    from headrace_admission.state.groups import groups_of as ordered

    assert set(_SOURCES) == set(GroupSource)
    own = {GroupName("b"): 2, GroupName("a"): 1, GroupName("h"): 3}
    found = ordered(own, [GroupName("h")], [GroupName("h"), GroupName("b"), GroupName("l")])
    assert found == (
        GroupOfPerson(GroupName("h"), GroupSource.HOST),
        GroupOfPerson(GroupName("b"), GroupSource.LOGIN),
        GroupOfPerson(GroupName("l"), GroupSource.LOGIN),
        GroupOfPerson(GroupName("a"), GroupSource.HEADRACE),
    )
