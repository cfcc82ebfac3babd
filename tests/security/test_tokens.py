"""Tokens of persons at a web service for everybody: each acts under its own credential, and the bus decides."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import msgspec
import pytest

from headrace.access.jwt import base64_of, claims_of, unbase64
from headrace.access.key_credential import KeyCredential
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.access.token_text import read_token_text, token_text
from headrace.bus import CredentialRefused, PermissionRefused
from headrace.client import Client, Refused
from headrace.client.tokens import NewToken
from headrace.runtime.clock import SystemClock
from headrace.wire import subjects
from headrace.wire.access_tokens import MOST_TOKENS, CreateToken, TokenCreated, proof_of
from headrace_cli.agent.token import new_user_key
from headrace_cli.persons.users import remove as remove_user
from headrace_web import token_sessions
from headrace_web.token_sessions import NoSession, TokenSessions
from tests.support.secured_cluster import PATIENCE_S, whole_cluster
from tests.support.shared_web import Site, a_site

PEOPLE = ("anna", "ben", "carl", "dora", "eve")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("tokens")
    with whole_cluster(path, nodes=["n1"], people=PEOPLE, administrators="eve") as cluster, a_site(cluster) as site:
        yield site


def test_a_token_makes_lists_and_revokes_no_token_over_http(site: Site) -> None:
    token = site.type("dora", "token", "create", "--name", "alone").strip()
    with site.program(token) as program:
        answers = [
            program.get("/tokens"),
            program.post("/tokens", json={"expires": "366d"}),
            program.delete("/tokens/alone"),
        ]
    assert [answer.status_code for answer in answers] == [403] * 3
    assert {answer.json()["type"] for answer in answers} == {"urn:headrace:not_allowed"}
    assert site.status(token) == 200
    site.type("dora", "token", "revoke", "alone")


async def created(client: Client, **options: Any) -> NewToken:
    return await client.tokens.create(**options)


def test_each_person_acts_under_their_own_name_and_sees_what_they_may(site: Site) -> None:
    anna, ben = (site.type(person, "token", "create", "--name", "nightly").strip() for person in ("anna", "ben"))
    body = {"argv": ["true", "secret"], "operation": "hers", "pool": "research", "cpu": 1, "memory": "16M"}
    with site.program(anna) as program:
        assert program.get("/me").json()["user"] == "anna"
        assert program.post("/operations", json=body).status_code == 201
        assert program.get("/operations/hers").json()["spec"]["argv"] == ["true", "secret"]
    with site.program(ben) as program:
        assert program.get("/me").json()["user"] == "ben"
        assert "secret" not in program.get("/operations/hers").text
        assert program.post("/operations/hers/abort", json={}).status_code == 403
    listed = json.loads(site.type("anna", "token", "list", "--json"))["tokens"]
    assert [(each["name"], each["read_only"]) for each in listed] == [("nightly", False)]
    # Nothing that can be shown again, or read in a log, is the token.
    seed, word = read_token_text(anna).credential.seed, read_token_text(anna).credential.jwt
    for text in (site.type("anna", "token", "list"), site.cluster.log("admission")):
        assert not any(secret in text for secret in (anna, seed, word))


def test_only_tokens_get_in(site: Site) -> None:
    with site.program("none") as program:
        assert program.get("/me").status_code == 401
        assert program.get("/openapi.json").status_code == 401
        assert program.post(f"{site.origin}/session", json={"ticket": ""}).status_code == 403
    token = site.type("anna", "token", "create").strip()
    read = read_token_text(token)
    other = new_user_key()
    head, body, signature = read.credential.jwt.split(".")
    forged = [
        token[:-5],
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        "headrace_" + "A" * 5_000,
        token_text(KeyCredential(jwt=read.credential.jwt, seed=other.seed)),
        token_text(KeyCredential(jwt=f"{head}.{body}.{signature[:-4]}AAAA", seed=read.credential.seed)),
    ]
    assert [site.status(each) for each in forged] == [401] * len(forged)
    assert site.status(token) == 200


def test_a_name_that_is_too_long_is_refused_with_its_option(site: Site) -> None:
    told = " ".join(site.type("anna", "token", "create", "--name", "x" * 61, expect=2).split())
    assert f"--name: '{'x' * 61}' cannot be used; expected a text of at most 60 characters" in told


async def test_the_bus_refuses_changes_with_a_token_that_only_reads(site: Site) -> None:
    async with site.cluster.client("anna") as client:
        token = await created(client, read_only=True)
    with site.program(token.text) as program:
        assert program.get("/operations").status_code == 200
        assert program.post("/pools/what-if", json={"changes": []}).status_code in (200, 400)
        answer = program.post("/operations", json={"argv": ["true"], "pool": "research"})
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:headrace:not_allowed")
    async with site.cluster.bus(
        Party(kind=PartyKind.PERSON, name="anna"), read_token_text(token.text).credential
    ) as bus:
        for verb in (
            "op.start",
            "op.abort",
            "op.upload",
            "pool.change",
            "job.session.n1",
            "token.create",
            "token.revoke",
        ):
            with pytest.raises(PermissionRefused):
                await bus.request(subjects.user("anna", verb), b"", timeout_s=5)
        with pytest.raises(PermissionRefused):
            await bus.request(subjects.user("ben", "op.list"), b"", timeout_s=5)


async def test_no_token_makes_another_one_or_names_the_key_of_another(site: Site) -> None:
    async with site.cluster.client("anna") as client:
        token = read_token_text((await created(client)).text)
        party = Party(kind=PartyKind.PERSON, name="anna")
        async with site.cluster.bus(party, token.credential) as bus:
            for verb in ("token.create", "token.list", "token.revoke"):
                with pytest.raises(PermissionRefused):
                    await bus.request(subjects.user("anna", verb), b"", timeout_s=5)
        key, own = new_user_key(), site.cluster.issued("client/people/anna/credential")
        bens = site.cluster.issued("client/people/ben/credential")
        proof = proof_of("anna", key.public)
        right = CreateToken(key.public, key.sign(proof), own.jwt, _sign(own.seed, proof))
        wrong = {
            "proof": msgspec.structs.replace(right, key=claims_of(bens.jwt)["sub"]),
            "jwt": msgspec.structs.replace(right, jwt=bens.jwt, own_proof=_sign(bens.seed, proof)),
            "jwt: ": msgspec.structs.replace(
                right, jwt=token.credential.jwt, own_proof=_sign(token.credential.seed, proof)
            ),
            "jwt:  ": msgspec.structs.replace(right, own_proof=b"x" * 64),
            "JWT": msgspec.structs.replace(right, jwt="nothing"),
        }
        for place, request in wrong.items():
            with pytest.raises(Refused, match=place.strip(": ")):
                await client._asker.ask("token.create", request, TokenCreated)
        # Asked again, because the first answer was lost, it is the same token.
        first, second = [await client._asker.ask("token.create", right, TokenCreated) for _ in range(2)]
        assert first.token == second.token


def _sign(seed: str, data: bytes) -> bytes:
    from headrace.access.nkeys import SigningKey

    return SigningKey.from_seed(seed).sign(data)


async def test_a_revoked_token_ends_with_its_streams(site: Site) -> None:
    async with site.cluster.client("anna") as client:
        kept, revoked = [(await created(client, name=name)).text for name in ("kept", "revoked")]
    lines = await anyio.to_thread.run_sync(
        _until_ended, site, revoked, lambda: site.type("anna", "token", "revoke", "revoked")
    )
    assert lines[-2:] == ["event: problem", lines[-1]]
    assert json.loads(lines[-1].removeprefix("data: "))["type"] == "urn:headrace:not_admitted"
    assert (site.status(revoked), site.status(kept)) == (401, 200)
    assert "did you mean" in site.type("anna", "token", "revoke", "kepd", expect=4)
    assert "there is no token" in site.type("ben", "token", "revoke", "kept", expect=4)


def _until_ended(site: Site, token: str, act: Any) -> list[str]:
    """Follow the events with a token, act, and return the lines of the stream, which must end."""
    lines = []
    with site.program(token) as program, program.stream("GET", "/events") as answer:
        for line in answer.iter_lines():
            if line == "event: following":
                act()
            if line:
                lines.append(line)
    return lines


async def test_tokens_of_a_removed_person_end(site: Site) -> None:
    async with site.cluster.client("carl") as client:
        token = (await created(client)).text
    remove = partial(remove_user, "carl", cluster=site.cluster.folder)
    lines = await anyio.to_thread.run_sync(_until_ended, site, token, remove)
    assert "not_admitted" in lines[-1]
    with pytest.raises(CredentialRefused):
        async with site.cluster.bus(Party(kind=PartyKind.PERSON, name="carl"), read_token_text(token).credential):
            pass


async def test_the_connections_of_tokens_are_bounded_and_closed_when_idle(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_sessions, "MOST_SESSIONS", 1)
    async with site.cluster.client("ben") as client, anyio.create_task_group() as tasks:
        first, second = [(await created(client)).text for _ in range(2)]
        sessions = TokenSessions(client.place, SystemClock(), tasks)
        async with sessions.use(first) as used, sessions.use(first) as shared:
            assert shared is used
            with pytest.raises(NoSession, match="too many tokens"):
                async with sessions.use(second):
                    pass
        # An unused session is closed for another token.
        async with sessions.use(second) as other:
            assert used.ended.is_set()
            assert not other.ended.is_set()
        monkeypatch.setattr(token_sessions, "_IDLE_S", 0.01)
        async with sessions.use(second):
            pass
        with anyio.fail_after(PATIENCE_S):
            await other.ended.wait()
        tasks.cancel_scope.cancel()


async def test_one_person_leaves_sessions_for_others(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token can be written in many ways, since its JWT is compressed. All of them are admitted."""
    monkeypatch.setattr(token_sessions, "MOST_OF_PERSON", 2)
    async with site.cluster.client("anna") as anna, site.cluster.client("ben") as ben:
        text, other = (await created(anna)).text, (await created(ben)).text
    written = [text, *(rewritten(text, level) for level in (0, 1))]
    assert len({*written}) == len(written)
    async with site.cluster.client("ben") as client, anyio.create_task_group() as tasks:
        sessions = TokenSessions(client.place, SystemClock(), tasks)
        async with sessions.use(written[0]), sessions.use(written[1]) as last:
            with pytest.raises(NoSession, match="too many tokens"):
                async with sessions.use(written[2]):
                    pass
            async with sessions.use(other) as bens:
                assert bens.user == "ben"
        # An unused session of the person is closed for another one, and those of others stay.
        async with sessions.use(written[1]) as last, sessions.use(written[2]):
            assert not bens.ended.is_set()
            assert not last.ended.is_set()
        tasks.cancel_scope.cancel()


def rewritten(text: str, level: int) -> str:
    """The same token with its JWT compressed in another way."""
    data = unbase64(text.removeprefix("headrace_"))[:-4]
    seed, claims, signature = msgspec.msgpack.decode(data)
    data = msgspec.msgpack.encode((seed, zlib.compress(zlib.decompress(claims), level), signature))
    return "headrace_" + base64_of(data + zlib.crc32(data).to_bytes(4, "big"))


def test_an_expired_token_is_refused_by_words(site: Site) -> None:
    token = site.type("anna", "token", "create", "--expires", "1s").strip()
    while site.status(token) == 200:
        pass
    with site.program(token) as program:
        assert "expired" in program.get("/me").json()["detail"]
    assert "366d" in site.type("anna", "token", "create", "--expires", "3000d", expect=2)


async def test_a_person_has_a_bounded_number_of_tokens(site: Site) -> None:
    async with site.cluster.client("dora") as client:
        for _ in range(MOST_TOKENS):
            await created(client, name="many")
        with pytest.raises(Refused, match="fewer than 32"):
            await created(client)
        with pytest.raises(Refused, match="the key of one of the tokens"):
            await client.tokens.revoke("many")
        assert len((await client.tokens.list()).tokens) == MOST_TOKENS
    async with site.cluster.client("ben") as client:
        await created(client)
