"""Credentials that are none: forged, changed, expired and revoked, at a secured server. Each is refused or cut off at once."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from headrace.access import jwt
from headrace.access.key_credential import KeyCredential
from headrace.access.nkeys import SECRET_BYTES, KeyKind, SigningKey
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace_cli.agent.token import new_user_key
from headrace_cli.cluster.command import push
from headrace_cli.cluster.folder import ClusterFolder
from headrace_cli.persons import users
from headrace_cli.persons.users import add as add_user
from headrace_cli.persons.users import remove as remove_user
from tests.support.bare_connection import BareConnection, NotLetIn
from tests.support.secured_cluster import Cluster, Server

ANNA = Party(kind=PartyKind.PERSON, name="anna")
EVERYTHING = {"allow": [">"]}
Forgery = Callable[[Cluster, KeyCredential], KeyCredential]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    path = tmp_path_factory.mktemp("secured")
    cluster = Cluster(path, nodes=["n1", "n2"], people=["anna", "ben", "carla"], administrators="eve")
    with Server(cluster.folder):
        yield cluster


def connection(cluster: Cluster, credential: KeyCredential) -> BareConnection:
    return BareConnection(cluster.port, cluster.ca_file, credential)


def rewritten(word: str, change: Callable[[dict[str, Any]], object]) -> str:
    """The word with other claims, under the signature that it had."""
    head, _, signature = word.split(".")
    claims = json.loads(json.dumps(jwt.claims_of(word)))
    change(claims)
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{head}.{middle}.{signature}"


def unsigned(word: str) -> str:
    """The word by a header that says that it needs no signature."""
    header = base64.urlsafe_b64encode(b'{"typ":"JWT","alg":"none"}').rstrip(b"=").decode()
    return f"{header}.{word.split('.')[1]}."


def signed_by(issuer: SigningKey, seed: str, more: Mapping[str, object] = {}) -> KeyCredential:
    """A credential of the key of this seed with every right of admission, by the word of an issuer."""
    public = SigningKey.from_seed(seed).public
    claims = dict(jwt.user_claims(public, "admission", Party(kind=PartyKind.ADMISSION)))
    claims["nats"] = {**claims["nats"], **more}
    return KeyCredential(jwt=jwt.signed(issuer, claims, int(time.time())), seed=seed)


def other_account() -> SigningKey:
    return SigningKey(KeyKind.ACCOUNT, bytes(range(SECRET_BYTES)))


FORGERIES: dict[str, Forgery] = {
    "the key of another": lambda _, own: KeyCredential(jwt=own.jwt, seed=new_user_key().seed),
    "more rights": lambda _, own: KeyCredential(
        jwt=rewritten(own.jwt, lambda claims: claims["nats"].update(pub=EVERYTHING, sub=EVERYTHING)), seed=own.seed
    ),
    "another name": lambda _, own: KeyCredential(
        jwt=rewritten(own.jwt, lambda claims: claims.update(name="admission", sub=new_user_key().public)), seed=own.seed
    ),
    "no signature": lambda _, own: KeyCredential(jwt=unsigned(own.jwt), seed=own.seed),
    "signed by its own key": lambda _, own: signed_by(SigningKey.from_seed(own.seed), own.seed),
    "signed by an account of its own": lambda _, own: signed_by(other_account(), own.seed),
    "signed by an account of its own for ours": lambda cluster, own: signed_by(
        other_account(), own.seed, {"issuer_account": cluster.account_authority().account}
    ),
    # The user of the server's own account hands over words about ours, and signs none.
    "signed by the system user of admission": lambda cluster, own: signed_by(
        SigningKey.from_seed(cluster.account_authority().system.seed), own.seed
    ),
    # It signs words about accounts, and lets nobody in by itself.
    "signed by the operator's key of admission": lambda cluster, own: signed_by(
        SigningKey.from_seed(cluster.account_authority().operator_seed), own.seed
    ),
    "signed for an account that the server does not know": lambda cluster, own: signed_by(
        SigningKey.from_seed(cluster.account_authority().account_seed),
        own.seed,
        {"issuer_account": other_account().public},
    ),
    "expired before": lambda cluster, _: cluster.signed_for(ANNA, lifetime_s=-1),
    "rubbish": lambda _, own: KeyCredential(jwt="x.y.z", seed=own.seed),
    "no word": lambda _, own: KeyCredential(jwt="", seed=own.seed),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_credential_is_not_let_in(cluster: Cluster, forgery: Forgery) -> None:
    own = cluster.issued("client/people/anna/credential")
    with connection(cluster, own) as anna:
        with pytest.raises(NotLetIn, match="Authorization Violation"):
            connection(cluster, forgery(cluster, own))
        assert anna.flush() == []


def test_a_connection_ends_when_its_credential_expires(cluster: Cluster) -> None:
    for lifetime_s in (1, 4, 16):
        short = cluster.signed_for(ANNA, lifetime_s=lifetime_s)
        # On a busy machine it may be over before it is used.
        with contextlib.suppress(NotLetIn), connection(cluster, short) as anna:
            assert "User Authentication Expired" in anna.wait_closed()
            break
    else:
        raise AssertionError("no credential was used in time")
    with pytest.raises(NotLetIn):
        connection(cluster, short)


def test_a_removed_person_and_a_removed_node_are_cut_off_at_once_and_stay_out(cluster: Cluster) -> None:
    carla = cluster.issued("client/people/carla/credential")
    node = cluster.issued("client/nodes/n1/credential")
    with connection(cluster, carla) as person, connection(cluster, node) as agent:
        remove_user("carla", cluster=cluster.folder)
        (cluster.folder / "client" / "nodes" / "n1").rename(cluster.path / "n1")
        cluster.init()
        push(cluster.folder)
        assert [each.wait_closed() for each in (person, agent)] == ["-ERR 'User Authentication Revoked'"] * 2
    for credential in (carla, node):
        with pytest.raises(NotLetIn):
            connection(cluster, credential)
    # All others go on.
    for place in ("client/people/ben/credential", "client/nodes/n2/credential"):
        with connection(cluster, cluster.issued(place)) as other:
            assert other.flush() == []


class PowerLoss(BaseException):
    """Ends a command between two of its steps."""


def lose_power(*_: object, **__: object) -> NoReturn:
    raise PowerLoss


async def lose_power_before_the_server_is_told(_: Path) -> NoReturn:
    raise PowerLoss


STEPS = [
    (ClusterFolder, "write", lose_power),
    (users, "tell_server", lose_power_before_the_server_is_told),
    (shutil, "rmtree", lose_power),
]


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_an_interrupted_removal_of_a_person_is_completed_by_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    person = f"dora-{step}"
    add_user(person, cluster=cluster.folder)
    credential = cluster.issued(f"client/people/{person}/credential")
    with connection(cluster, credential) as connected:
        assert connected.flush() == []
        with monkeypatch.context() as patched:
            patched.setattr(*STEPS[step])
            with pytest.raises(PowerLoss):
                remove_user(person, cluster=cluster.folder)
        # The commands in between neither let the person in again nor are refused.
        cluster.init()
        remove_user(person, cluster=cluster.folder)
        assert connected.wait_closed() == "-ERR 'User Authentication Revoked'"
    with pytest.raises(NotLetIn):
        connection(cluster, credential)
    add_user(person, cluster=cluster.folder)
    with connection(cluster, cluster.issued(f"client/people/{person}/credential")) as again:
        assert again.flush() == []


@pytest.mark.parametrize("step", range(2))
def test_an_interrupted_change_of_groups_is_completed_by_the_next(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    person = f"finn-{step}"
    add_user(person, cluster=cluster.folder, groups="leads")
    former = cluster.issued(f"client/people/{person}/credential")
    with monkeypatch.context() as patched:
        patched.setattr(*STEPS[step])
        with pytest.raises(PowerLoss):
            add_user(person, cluster=cluster.folder, groups="")
    add_user(person, cluster=cluster.folder, groups="")
    with pytest.raises(NotLetIn):
        connection(cluster, former)
    with connection(cluster, cluster.issued(f"client/people/{person}/credential")) as again:
        assert again.flush() == []
