"""Browsers at a web service for everybody: who is let in, as whom, until when, and which requests are refused."""

from __future__ import annotations

import base64
import http.server
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headrace.access.web_login import BEGIN_PATH, FINISH_PATH, FinishLogin, LoginBegun
from headrace.client import Client, NotAdmitted, NotRunning, NotTrusted, Refused
from headrace.client.web_login import log_in_browser
from headrace.errors import BadInput
from headrace.wire.access_tokens import EndToken, TokenRevoked, end_proof_of
from headrace_cli.agent.token import new_user_key
from headrace_cli.cluster.tls import init as init_tls
from headrace_cli.persons.users import remove as remove_user
from tests.support.secured_cluster import PATIENCE_S, whole_cluster
from tests.support.shared_web import Site, a_site

pytestmark = pytest.mark.long

PEOPLE = ("anna", "ben", "carl", "eve")
COOKIE = "__Host-headrace"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("logins")
    with whole_cluster(path, nodes=["n1"], people=PEOPLE, administrators="eve") as cluster, a_site(cluster) as site:
        yield site


def address(site: Site, person: str, *options: str) -> str:
    """The address that a person gets by typing the command."""
    return str(json.loads(site.type(person, "web", "login", site.origin, "--json", *options))["url"])


def ticket_in(url: str) -> str:
    return url.partition("#ticket=")[2]


@pytest.fixture(autouse=True)
def _closes() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


_opened: list[httpx.Client] = []


class Browser:
    """A browser with its cookie, and the console's page with its token."""

    def __init__(self, site: Site, url: str) -> None:
        self.client = httpx.Client(base_url=site.origin, verify=site.trusted, timeout=PATIENCE_S)
        _opened.append(self.client)
        self.client.headers["origin"] = site.origin
        self.client.headers["sec-fetch-site"] = "same-origin"
        answer = self.client.post("/session", json={"ticket": ticket_in(url)})
        self.set_cookie = answer.headers.get("set-cookie", "")
        self.page_token = str(answer.json().get("token", ""))
        self.status = answer.status_code

    @property
    def cookie(self) -> str:
        return self.client.cookies[COOKIE]

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        given = {
            "x-headrace-token": self.page_token,
            **{name.replace("_", "-"): each for name, each in headers.items()},
        }
        return self.client.request(method, f"/api/v1{path}", json=body, headers=given)

    def leave(self) -> httpx.Response:
        return self.client.delete("/session", headers={"x-headrace-token": self.page_token})


def entered(site: Site, person: str, *options: str) -> Browser:
    browser = Browser(site, address(site, person, *options))
    assert browser.status == 200
    return browser


def tokens(site: Site, person: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(site.type(person, "token", "list", "--json"))["tokens"]
    return found


def test_two_persons_act_under_their_own_names(site: Site) -> None:
    anna, ben = entered(site, "anna"), entered(site, "ben")
    body = {"argv": ["true", "secret"], "operation": "hers", "pool": "research", "cpu": 1, "memory": "16M"}
    assert anna.ask("POST", "/operations", body).status_code == 201
    assert [each.ask("GET", "/me").json()["user"] for each in (anna, ben)] == ["anna", "ben"]
    assert anna.ask("GET", "/operations/hers").json()["spec"]["argv"] == ["true", "secret"]
    assert "secret" not in ben.ask("GET", "/operations/hers").text
    assert ben.ask("POST", "/operations/hers/abort", {}).status_code == 403
    (token,) = tokens(site, "anna")
    assert token["name"] == "browser at 127.0.0.1"
    assert 0 < token["expires_at_ms"] - token["created_at_ms"] <= DAY_MS / 2
    # The cookie never travels without TLS, to another host, with a request of another site, or to a script.
    assert {part.strip().lower() for part in anna.set_cookie.split(";")[1:]} == {
        "secure", "httponly", "samesite=strict", "path=/",
    }  # fmt: skip


def test_an_address_admits_one_browser(site: Site) -> None:
    url = address(site, "anna")
    assert Browser(site, url).status == 200
    again = Browser(site, url)
    assert (again.status, again.page_token) == (403, "")
    assert Browser(site, url + "x").status == 403
    assert Browser(site, "").status == 403


def test_what_a_request_must_have(site: Site) -> None:
    browser, other = entered(site, "anna"), entered(site, "ben")
    assert browser.ask("GET", "/me").status_code == 200
    missing = browser.client.get("/api/v1/me")
    assert (missing.status_code, f"headrace web login {site.origin}" in missing.json()["detail"]) == (401, True)
    assert browser.ask("GET", "/me", x_headrace_token=other.page_token).status_code == 401
    assert browser.ask("GET", "/me", cookie=f"{COOKIE}={other.cookie}").status_code == 401
    assert browser.ask("GET", "/me", cookie="").status_code == 401
    assert browser.client.delete("/session").status_code == 401
    for foreign in (
        {"origin": "https://evil.example"},
        {"origin": site.origin.replace("https", "http")},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ):
        for method, path, body in (("GET", "/me", None), ("GET", "/events", None), ("POST", "/operations/x/abort", {})):
            assert browser.ask(method, path, body, **foreign).json()["type"] == "urn:headrace:wrong_origin"
        named = {name.replace("_", "-"): each for name, each in foreign.items()}
        for path in ("/session", BEGIN_PATH, FINISH_PATH):
            assert browser.client.post(path, json={}, headers=named).status_code == 403
    # A link in a mail leads to the page, whose own requests have the cookie.
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    page = httpx.get(f"{site.origin}/operations", headers=link, verify=site.trusted)
    assert (page.status_code, "default-src 'self'" in page.headers["content-security-policy"]) == (200, True)
    assert browser.ask("GET", "/me").status_code == 200


def test_a_session_that_reads_changes_nothing(site: Site) -> None:
    browser = entered(site, "anna", "--read-only")
    assert browser.ask("GET", "/operations").status_code == 200
    answer = browser.ask("POST", "/operations", {"argv": ["true"], "pool": "research"})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:headrace:not_allowed")
    assert browser.leave().json() == {"revoked": True}


def test_a_logout_revokes_the_token_and_ends_the_session(site: Site) -> None:
    before = {each["key"] for each in tokens(site, "anna")}
    browser, other = entered(site, "anna"), entered(site, "anna")
    assert len(tokens(site, "anna")) == len(before) + 2
    with browser.client.stream("GET", "/api/v1/events", headers={"x-headrace-token": browser.page_token}) as answer:
        for line in answer.iter_lines():
            if line == "event: following":
                assert browser.leave().json() == {"revoked": True}
    assert browser.ask("GET", "/me").status_code == 401
    assert browser.leave().status_code == 401
    assert other.ask("GET", "/me").status_code == 200
    assert len({each["key"] for each in tokens(site, "anna")} - before) == 1


def test_a_revoked_session_says_how_to_log_in(site: Site) -> None:
    browser = entered(site, "anna")
    newest = max(tokens(site, "anna"), key=lambda each: each["created_at_ms"])
    site.type("anna", "token", "revoke", newest["key"])
    answer = browser.ask("GET", "/me")
    assert (answer.status_code, "the session has ended" in answer.json()["detail"]) == (401, True)
    assert f"headrace web login {site.origin}" in answer.json()["detail"]


def test_a_session_ends_by_itself(site: Site) -> None:
    browser = None
    for expires in ("2s", "10s", "60s"):
        # On a busy machine the token can expire before the browser has entered.
        with suppress(AssertionError):
            browser = entered(site, "anna", "--expires", expires)
            break
    assert browser is not None
    # A request that was under way when the server closed the connection is answered by 504.
    while (answer := browser.ask("GET", "/me")).status_code != 401:
        pass
    assert (answer.status_code, f"headrace web login {site.origin}" in answer.json()["detail"]) == (401, True)


def test_sessions_of_a_removed_person_end(site: Site) -> None:
    browser = entered(site, "carl")
    assert browser.ask("GET", "/me").json()["user"] == "carl"
    remove_user("carl", cluster=site.cluster.folder)
    while browser.ask("GET", "/me").status_code != 401:
        pass


def test_a_restarted_service_knows_no_session(site: Site) -> None:
    with a_site(site.cluster) as first:
        browser = entered(first, "anna")
        port = int(first.origin.rpartition(":")[2])
    with a_site(site.cluster, port=port) as second:
        assert second.origin == first.origin
        answer = browser.ask("GET", "/me")
        assert (answer.status_code, "headrace web login" in answer.json()["detail"]) == (401, True)


async def begun_by(site: Site, client: Client) -> tuple[LoginBegun, str]:
    """A login that has begun, and the JWT of a token for its key."""
    answer = _post(site, BEGIN_PATH, {"user": client.user})
    begun = msgspec.json.decode(answer.content, type=LoginBegun)
    made = await client.tokens.create_for(begun.key, begun.proof, lifetime_ms=DAY_MS)
    return begun, made.jwt


def _post(site: Site, path: str, body: object) -> httpx.Response:
    data, headers = msgspec.json.encode(body), {"content-type": "application/json"}
    return httpx.post(f"{site.origin}{path}", content=data, headers=headers, verify=site.trusted, timeout=PATIENCE_S)


async def test_only_the_jwt_of_this_login_finishes_it(site: Site) -> None:
    async with site.cluster.client("anna") as client:
        begun, jwt = await begun_by(site, client)
        other, others = await begun_by(site, client)
    head, claims, signature = jwt.split(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    renamed = base64.urlsafe_b64encode(json.dumps({**said, "name": "person-eve"}).encode()).decode().rstrip("=")
    own = site.cluster.issued("client/people/anna/credential").jwt
    refused = {
        "a JWT of another key": (begun.login, others, 400),
        "the credential of a person": (begun.login, own, 400),
        "another login": (other.login, jwt, 400),
        "a login that nobody began": ("x", jwt, 400),
        "no JWT": (begun.login, "x", 400),
        "a JWT of many parts": (begun.login, jwt + ".x", 400),
        "a forged signature": (begun.login, f"{head}.{claims}.{signature[:-4]}AAAA", 401),
        "forged claims": (begun.login, f"{head}.{renamed}.{signature}", 401),
    }
    found = {what: _post(site, FINISH_PATH, FinishLogin(login, word)) for what, (login, word, _) in refused.items()}
    assert {what: each.status_code for what, each in found.items()} == {what: each[2] for what, each in refused.items()}
    assert not any(jwt in each.text for each in found.values())
    finished = _post(site, FINISH_PATH, FinishLogin(begun.login, jwt))
    assert Browser(site, f"#ticket={finished.json()['ticket']}").ask("GET", "/me").json()["user"] == "anna"


async def test_a_key_that_the_service_made_is_signed_for_its_person_only(site: Site) -> None:
    begun = msgspec.json.decode(_post(site, BEGIN_PATH, {"user": "anna"}).content, type=LoginBegun)
    async with site.cluster.client("ben") as client:
        with pytest.raises(Refused, match="proof"):
            await client.tokens.create_for(begun.key, begun.proof, lifetime_ms=DAY_MS)


async def test_only_its_holder_ends_a_token_by_its_key(site: Site) -> None:
    async with site.cluster.client("anna") as client, site.cluster.client("ben") as other:
        made = await client.tokens.create()
        key = new_user_key()
        for proof in (key.sign(end_proof_of("anna", made.token.key)), b""):
            with pytest.raises(Refused, match="proof"):
                await client._asker.ask("token.end", EndToken(made.token.key, proof), TokenRevoked)
        unknown = EndToken(key.public, key.sign(end_proof_of("ben", key.public)))
        with pytest.raises(Refused, match="there is no token"):
            await other._asker.ask("token.end", unknown, TokenRevoked)
        assert made.token in (await client.tokens.list()).tokens


def test_what_strangers_send_is_refused_and_kept_nowhere(site: Site) -> None:
    assert _post(site, BEGIN_PATH, {"user": "No Name"}).json()["place"] == "user name"
    assert _post(site, BEGIN_PATH, {}).status_code == 400
    assert _post(site, BEGIN_PATH, {"user": "x" * 2_000}).status_code == 413
    assert _post(site, FINISH_PATH, {"login": "x", "jwt": "x" * 50_000}).status_code == 413
    assert _post(site, FINISH_PATH, {"login": "x" * 100, "jwt": "x"}).status_code == 400
    plain = httpx.post(f"{site.origin}{BEGIN_PATH}", content=b'{"user":"anna"}', verify=site.trusted)
    assert plain.status_code == 400


def test_the_command_says_where_and_how_long(site: Site) -> None:
    told = site.type("ben", "web", "login", site.origin, "--no-open", "--expires", "1h", "--read-only")
    assert re.search(rf"open +{re.escape(site.origin)}/#ticket=\S{{43}}\n", told)
    listed = site.type("ben", "token", "list")
    assert re.search(r"browser at 127\.0\.0\.1 +read ", listed)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://headrace.example:8040", "https://"),
        ("http://127.0.0.1:8040", "https://"),
        ("headrace.example", "https://"),
        ("https://headrace.example/pools", "https://"),
        ("https://a:b@headrace.example", "https://"),
        ("https://headrace.example:x", "https://"),
    ],
)
async def test_addresses_that_are_no_service(site: Site, url: str, words: str) -> None:
    async with site.cluster.client("anna") as client:
        with pytest.raises(BadInput, match=words):
            await log_in_browser(client, url, lifetime_ms=DAY_MS)


async def test_a_service_that_is_down_or_not_trusted_gets_nothing(site: Site, tmp_path: Path) -> None:
    init_tls(tmp_path / "other", "127.0.0.1")
    async with site.cluster.client("anna") as client:
        count = len((await client.tokens.list()).tokens)
        with pytest.raises(NotTrusted, match="--ca"):
            await log_in_browser(client, site.origin, ca_file=str(tmp_path / "other" / "ca.pem"), lifetime_ms=DAY_MS)
        with pytest.raises(NotRunning):
            await log_in_browser(client, "https://127.0.0.1:1", lifetime_ms=DAY_MS)
        with pytest.raises(BadInput, match="PEM"):
            await log_in_browser(client, site.origin, ca_file=str(tmp_path / "none"), lifetime_ms=DAY_MS)
        with pytest.raises(NotTrusted):
            # Its certificate is for the address 127.0.0.1.
            await log_in_browser(client, site.origin.replace("127.0.0.1", "localhost"), lifetime_ms=DAY_MS)
        assert len((await client.tokens.list()).tokens) == count
        made = await log_in_browser(client, site.origin, ca_file=site.cluster.ca_file, lifetime_ms=DAY_MS)
        assert made.url.startswith(f"{site.origin}/#ticket=")


async def test_another_server_at_the_address_is_told_from_the_service(site: Site) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    folder = site.cluster.folder / "nats"
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        async with site.cluster.client("anna") as client:
            with pytest.raises(NotAdmitted, match="answers 501"):
                await log_in_browser(client, f"https://127.0.0.1:{server.server_port}", lifetime_ms=DAY_MS)
        thread.join()
