"""`headrace web` from outside: every endpoint over HTTP, who is let in, streams, and what remains when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import psutil
import pytest

from headrace_web.api.endpoint import PREFIX
from headrace_web.api.table import ENDPOINTS
from headrace_web.app import OPENAPI_FILE
from tests.support.effort import few_or_many
from tests.support.headrace_up import Up
from tests.support.random_requests import send_random_requests

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "http-api.md"
DESCRIBED: dict[str, Any] = json.loads(OPENAPI_FILE.read_text(encoding="utf-8"))


class Served:
    """A web service, and requests of a program to it. Every answer is compared with the description of the API."""

    def __init__(self, told: bytes | str) -> None:
        self.told: dict[str, str] = json.loads(told)
        self.header_file = Path(self.told["header_file"])
        name, _, value = self.header_file.read_text(encoding="ascii").strip().partition(": ")
        self.client = httpx.Client(base_url=self.told["api"], headers={name: value}, timeout=30)
        self.origin = self.told["api"].removesuffix(PREFIX)
        #: Names of the endpoints that were asked.
        self.asked: set[str] = set()

    def ask(self, method: str, path: str, body: object = None, *, expect: int = 200, **query: Any) -> Any:
        answer = self.client.request(method, path, json=body, params=query)
        assert answer.status_code == expect, answer.text
        found = answer.json()
        template = self._template(method, path)
        described = DESCRIBED["paths"][PREFIX + template][method.lower()]["responses"][str(expect)]
        if "$ref" in described:
            described = DESCRIBED["components"]["responses"][described["$ref"].rpartition("/")[2]]
        (content,) = described["content"].items()
        assert answer.headers["content-type"] == content[0]
        schema = {"$ref": "#/x", "x": content[1]["schema"], "components": DESCRIBED["components"]}
        jsonschema.Draft202012Validator(schema).validate(found)
        return found

    def events(
        self, path: str, *, last_event_id: str = "", **query: Any
    ) -> Generator[tuple[str, str, dict[str, Any]], None, None]:
        """The kind, the id and the data of each event, until the stream ends or the reader has enough."""
        self._template("GET", path)
        headers = {"last-event-id": last_event_id} if last_event_id else {}
        with self.client.stream("GET", path, params=query, headers=headers) as answer:
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            event: dict[str, str] = {}
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if line and name:
                    event[name] = value
                elif event:
                    yield event["event"], event.get("id", ""), json.loads(event["data"])
                    event = {}

    def _template(self, method: str, path: str) -> str:
        parts = path.split("/")
        for endpoint in ENDPOINTS:
            known = endpoint.path.split("/")
            fits = len(known) == len(parts) and all(a == b or a[:1] == "{" for a, b in zip(known, parts, strict=True))
            if endpoint.method == method and fits:
                self.asked.add(endpoint.name)
                return endpoint.path
        raise AssertionError(f"no endpoint {method} {path}")


class Web(Served):
    """A running `headrace web`."""

    def __init__(self, up: Up, *options: str, port: str = "0") -> None:
        self.process = up.begin("web", "--port", port, "--json", *options)
        assert self.process.stdout is not None
        super().__init__(self.process.stdout.readline())

    def end(self, number: int = signal.SIGTERM) -> int:
        self.client.close()
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def a_web(up: Up, *options: str, port: str = "0") -> Iterator[Web]:
    web = Web(up, *options, port=port)
    try:
        yield web
    finally:
        web.client.close()
        if web.process.poll() is None:
            web.end(signal.SIGKILL)
        for stream in (web.process.stdout, web.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with Up() as up:
        yield up


def start(web: Web, name: str, *argv: str, **options: Any) -> Mapping[str, Any]:
    body = {"argv": list(argv), "operation": name, "pool": "research", **options}
    found: Mapping[str, Any] = web.ask("POST", "/operations", body, expect=201)
    return found


def pages(web: Served, path: str, items: str, name: str, **query: Any) -> list[str]:
    """The names of all items of a list that is read item by item."""
    found, cursor = [], ""
    while cursor is not None:
        page = web.ask("GET", path, limit=1, cursor=cursor, **query)
        assert len(page[items]) <= 1
        found += [each[name] for each in page[items]]
        cursor = page["next"]
    return found


def test_a_person_can_do_everything_over_http(up: Up) -> None:
    with a_web(up) as web:
        _operations(web)
        _pools_and_trees(web)
        _nodes_groups_and_usage(web)
        assert {endpoint.name for endpoint in ENDPOINTS} - web.asked == set()
        assert web.end() == 0
        assert not web.header_file.parent.exists()


def _operations(web: Web) -> None:
    planned = web.ask("POST", "/operations/plan", {"argv": ["true"], "pool": "research"})
    assert planned["places"][0]["pool"] == "research"
    read: dict[str, Any] = {"name": "read", "argv": ["true"], "jobs": 2, "memory": "8M"}
    tasks = [read, {"name": "write", "argv": ["true"]}]
    assert web.ask("POST", "/operations/plan", {"tasks": tasks, "pool": "research"})["places"]
    together = [read | {"gang": True}, {"name": "write", "argv": ["true"]}]
    assert web.ask("POST", "/operations/plan", {"tasks": together, "pool": "research"})["places"]
    both = web.ask("POST", "/operations/plan", {"tasks": together, "gang": True}, expect=400)
    assert both["place"] == "tasks.0", both
    wrong = web.ask("POST", "/operations/plan", {"tasks": [read | {"cpu": "two"}]}, expect=400)
    assert (wrong["place"], "two" in wrong["detail"]) == ("cpu", True)
    words = ("sh", "-c", "echo one; echo two >&2; sleep 0.2; echo three")
    told = start(web, "first", *words, title="a <b>", memory="16M")
    assert (told["operation"], told["repeated"], told["ephemeral_pool"]) == ("first", False, True)
    lines = list(web.events("/operations/first/logs", follow=True, stream="both"))
    assert {(each["text"], each["stream"]) for kind, _, each in lines if kind == "line"} == {
        ("one", "stdout"), ("two", "stderr"), ("three", "stdout"),
    }  # fmt: skip
    assert lines[-1][0] == "end"
    assert start(web, "first", *words, title="a <b>", memory="16M")["repeated"] is True
    other = {"argv": ["true"], "operation": "first", "pool": "research"}
    assert web.ask("POST", "/operations", other, expect=409)["type"] == "urn:headrace:exists"
    assert web.ask("GET", "/operations/first")["state"] == "completed"
    *history, read_to, end = web.events("/operations/first/history")
    assert [kind for kind, _, _ in history] == ["operation", "job_ended", "operation"]
    assert (read_to[0], end[0]) == ("read_to", "end")
    assert list(web.events("/operations/first/history", **read_to[2])) == [read_to, end]

    start(web, "second", "sleep", "60", jobs=3)
    assert pages(web, "/operations", "operations", "operation", pool="/research") == ["second", "first"]
    assert pages(web, "/operations", "operations", "operation", order="oldest") == ["first", "second"]
    assert web.ask("GET", "/operations", cursor="second", expect=400)["place"] == "cursor"
    jobs = web.ask("GET", "/operations/second/jobs", limit=2)
    assert ([each["slot"]["index"] for each in jobs["jobs"]], jobs["next"]) == ([0, 1], 2)
    assert [each["slot"]["index"] for each in web.ask("GET", "/operations/second/jobs", cursor=2)["jobs"]] == [2]
    assert web.ask("GET", "/operations/second/places")["operation"] == "second"
    assert web.ask("GET", "/operations/second/explanation")["limits"]["view"]["operation"] == "second"
    assert web.ask("PATCH", "/operations/second", {"weight": 2.5})["spec"]["weight"] == 2.5
    assert web.ask("POST", "/operations/second/suspend")["suspended"] is True
    assert web.ask("POST", "/operations/second/resume")["suspended"] is False
    assert web.ask("POST", "/operations/second/abort", {"reason": "enough"})["reason"].endswith("enough")
    start(web, "third", "sleep", "60")
    assert web.ask("POST", "/operations/third/complete")["state"] in ("completing", "completed")

    unknown = web.ask("GET", "/operations/firs", expect=404)
    assert unknown["near"] == ["first"]
    assert web.ask("GET", "/operations/firs/logs", expect=404)["type"] == "urn:headrace:not_found"
    assert web.ask("POST", "/operations/first/resume", expect=409)["type"] == "urn:headrace:wrong_state"
    wrong = web.ask("POST", "/operations", {"argv": ["x"], "memory": "8 sheep"}, expect=400)
    assert (wrong["place"], "8 sheep" in wrong["detail"]) == ("memory", True)


def _pools_and_trees(web: Web) -> None:
    made = {"changes": [{"change": "create", "pool": "vision", "attributes": {"weight": 2}}]}
    below: dict[str, Any] = {"changes": [{"change": "create", "pool": "sight", "to": "vision"}]}
    assert web.ask("POST", "/pools/changes", made | {"dry_run": True})["created"][0]["name"] == "vision"
    assert web.ask("GET", "/pools/vision", expect=404)["type"] == "urn:headrace:not_found"
    revision = web.ask("POST", "/pools/changes", made)["revision"]
    changed = {"changes": [{"change": "set", "pool": "vision", "attributes": {"weight": 3}}]}
    stale = web.ask("POST", "/pools/changes", changed | {"expected_revision": revision + 1}, expect=409)
    assert stale["type"] == "urn:headrace:wrong_state"
    supposed = web.ask("POST", "/pools/what-if", changed | {"nodes": [{"count": 1, "resources": {"cpu": 4}}]})
    assert supposed["plan"]["changed"][0]["name"] == "vision"
    assert web.ask("POST", "/pools/changes", changed | {"expected_revision": revision})["changed"]
    broken = {"changes": [{"change": "set", "pool": "vision", "attributes": {"weight": -1}}]}
    assert web.ask("POST", "/pools/changes", broken, expect=400)["place"]
    web.ask("POST", "/pools/changes", below)
    assert pages(web, "/pools", "pools", "name")[:3] == ["<Root>", "vision", "sight"]
    assert pages(web, "/pools", "pools", "name", parent="<Root>")[:1] == ["vision"]
    assert pages(web, "/pools", "pools", "name", parent="/vision") == ["sight"]
    assert pages(web, "/pools", "pools", "name", name_prefix="vis") == ["vision"]
    assert pages(web, "/pools", "pools", "name", starving=True) == []
    assert web.ask("GET", "/pools", parent="vison", expect=404)["near"] == ["vision"]
    assert web.ask("GET", "/pools/vision")["pool"]["path"] == "/vision"
    assert web.ask("GET", "/pools/vision/explanation")["steps"][-1]["pool"] == "vision"
    period = {"since_ms": 0, "until_ms": 4_000_000_000_000}
    assert web.ask("GET", "/pools/%3CRoot%3E/history", from_oldest=True, **period)["known"] is True
    assert web.ask("GET", "/pools/vision/lost-work", **period)["kept_since_ms"] >= 0
    assert web.ask("GET", "/pools/vision/preemptions")["observed"] == []
    assert web.ask("GET", "/starving", pool="vision")["starving"] == []
    assert web.ask("GET", "/starving", pool="visoin", expect=404)["type"] == "urn:headrace:not_found"
    page = web.ask("GET", "/preemptions", **period)
    assert (page["preemptions"], page["next"], page["begins_late"]) == ([], None, False)
    assert web.ask("GET", "/preemptions", cursor=page["read_to"])["read_to"] >= page["read_to"]

    assert web.ask("POST", "/trees/gpu", {"options": {}}, expect=201)["tree"] == "gpu"
    assert pages(web, "/trees", "trees", "tree") == ["default", "gpu"]
    assert pages(web, "/trees", "trees", "tree", name_prefix="g") == ["gpu"]
    assert (
        web.ask("PATCH", "/trees/gpu", {"options": {"default_parent_pool": None}, "dry_run": True})["dry_run"] is True
    )
    moved = web.ask("POST", "/pools/vision/move-to-tree", {"to_tree": "gpu", "dry_run": True})
    assert moved["dry_run"] is True
    assert web.ask("GET", "/trees/gpu")["tree"] == "gpu"
    assert web.ask("DELETE", "/trees/gpu")["tree"] == "gpu"


def _nodes_groups_and_usage(web: Web) -> None:
    assert pages(web, "/nodes", "nodes", "node", state="online", name_prefix="al") == ["alpha"]
    assert pages(web, "/nodes", "nodes", "node", tag="gpu") == []
    assert web.ask("GET", "/nodes", state="onlin", expect=400)["place"] == "state"
    assert web.ask("POST", "/nodes/alpha/drain", {"reason": "a new disk"})["drain"]["reason"] == "a new disk"
    assert web.ask("GET", "/nodes/alpha")["drain"]["reason"] == "a new disk"
    assert web.ask("POST", "/nodes/alpha/undrain")["drain"] is None
    assert web.ask("POST", "/nodes/beta/shut-out", expect=404)["type"] == "urn:headrace:not_found"
    assert web.ask("DELETE", "/nodes/beta", expect=404)["type"] == "urn:headrace:not_found"
    services = pages(web, "/services", "services", "service")
    assert (set(services) >= {"admission", "allocator"}, len(services)) == (True, len(set(services)))
    assert pages(web, "/services", "services", "service", service="allocator") == ["allocator"]

    assert list(web.ask("POST", "/groups/ml", {"members": ["anna"]}, expect=201)["members"]) == ["anna"]
    assert set(web.ask("POST", "/groups/ml/add", {"members": ["ben"]})["members"]) == {"anna", "ben"}
    assert set(web.ask("POST", "/groups/ml/remove", {"members": ["anna"]})["members"]) == {"ben"}
    web.ask("POST", "/groups/infra", {"members": []}, expect=201)
    assert pages(web, "/groups", "groups", "name") == ["infra", "ml"]
    assert pages(web, "/groups", "groups", "name", name_prefix="m") == ["ml"]
    assert set(web.ask("GET", "/groups/ml")["members"]) == {"ben"}
    assert web.ask("DELETE", "/groups/ml")["name"] == "ml"
    assert web.ask("GET", "/me")["user"] == web.told["user"]
    assert web.ask("GET", "/me", pool="vision")["pools"]
    wrong = web.ask("POST", "/tokens", {"expires": "0s"}, expect=400)
    assert (wrong["place"], "366d" in wrong["detail"]) == ("expires", True)
    for method, path in (("GET", "/tokens"), ("POST", "/tokens"), ("DELETE", "/tokens/nightly")):
        assert "headrace cluster init --operator" in web.ask(method, path, expect=409)["detail"]
    days = {"since": "2026-01-01", "until": "2100-01-01"}
    assert pages(web, "/usage", "lines", "pool", by="user,pool", **days) == ["/research"]
    used = pages(web, "/usage", "lines", "operation", by="operation", **days)
    assert (used[:2], used) == (["first", "second"], sorted(set(used)))
    assert web.ask("GET", "/usage", since="2026-01-01", until="2100-01-01", by="owner", expect=400)["place"] == "by[0]"
    _events(web)


def _events(web: Web) -> None:
    """Follow events, leave, and come back."""
    first_id = ""
    with closing(web.events("/events", pool="research")) as events:
        for kind, number, data in events:
            if kind == "following":
                start(web, "followed", "true")
            first_id = first_id or number
            if data.get("state") == "completed":
                assert (kind, data["operation"]) == ("operation", "followed")
                break
    start(web, "unseen", "true")
    while web.ask("GET", "/operations/unseen")["state"] != "completed":
        pass
    came = []
    with closing(web.events("/events", last_event_id=first_id)) as events:
        for kind, _, data in events:
            if kind == "operation":
                came.append((data["operation"], data["state"]))
            if came[-1:] == [("unseen", "completed")]:
                break
    assert came == [("followed", "completed"), ("unseen", "running"), ("unseen", "completed")]


def test_nobody_else_gets_in(up: Up) -> None:
    with a_web(up, "--read-only") as web, httpx.Client(timeout=30) as plain:
        api = web.told["api"]
        assert plain.get(f"{api}/me").status_code == 401
        assert plain.get(f"{api}/openapi.json").status_code == 401
        assert plain.get(f"{api}/events").status_code == 401
        assert web.client.get("/me", headers={"host": "evil.example"}).status_code == 421
        assert web.client.get("/me", headers={"origin": "http://evil.example"}).status_code == 403
        assert web.client.get("/events", headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert web.ask("POST", "/operations", {"argv": ["true"]}, expect=403)["type"] == "urn:headrace:read_only"
        assert web.header_file.stat().st_mode & 0o777 == 0o600
        assert web.header_file.parent.stat().st_mode & 0o777 == 0o700
        # Another account sees the arguments of all processes.
        assert not set(psutil.Process(web.process.pid).cmdline()) & {
            web.told["url"],
            web.client.headers["authorization"],
        }
        wrong = web.client.get("/nowhere")
        assert (wrong.status_code, wrong.headers["content-type"]) == (404, "application/problem+json")
        assert web.client.get("/openapi.json").json() == DESCRIBED


def test_a_browser_enters_once_with_its_ticket(up: Up) -> None:
    with a_web(up) as web, httpx.Client(timeout=30, headers={"origin": web.origin}) as browser:
        browser.base_url = httpx.URL(web.origin)
        page = browser.get("/")
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'self'; frame-ancestors 'none'")
        assert browser.get("/static/now.js").headers["content-type"].startswith("text/javascript")
        assert browser.get("/static/../server.py").status_code == 404
        ticket = web.told["url"].partition("#ticket=")[2]
        form = {"content-type": "text/plain"}
        assert browser.post("/session", content=json.dumps({"ticket": ticket}), headers=form).status_code == 400
        evil = {"origin": "http://evil.example"}
        assert browser.post("/session", json={"ticket": ticket}, headers=evil).status_code == 403
        entered = browser.post("/session", json={"ticket": ticket})
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        token = {"x-headrace-token": entered.json()["token"]}
        assert browser.get("/api/v1/me", headers=token).json()["user"] == web.told["user"]
        assert browser.get("/api/v1/me").status_code == 401
        assert httpx.get(f"{web.origin}/api/v1/me", headers=token).status_code == 401
        assert httpx.post(f"{web.origin}/session", json={"ticket": ticket}).status_code == 403
        assert web.process.stdout is not None
        again = json.loads(web.process.stdout.readline())["url"]
        assert httpx.post(f"{web.origin}/session", json={"ticket": again.partition("#ticket=")[2]}).status_code == 200


def test_ctrl_c_ends_it_although_a_stream_is_open(up: Up) -> None:
    with a_web(up) as web:
        events = web.events("/events")
        assert next(events)[0] == "following"
        web.process.send_signal(signal.SIGINT)
        assert [(kind, data["type"]) for kind, _, data in events] == [("problem", "urn:headrace:stopping")]
        assert web.process.wait(20) == 130


def test_up_runs_it_restarts_it_and_ends_it_in_order() -> None:
    with Up("--web-port", "0") as up:
        up.wait_said("API ")
        web = Served((up.state / "web" / "address.json").read_bytes())
        assert up.said().splitlines()[-2:] == [
            f"open  {web.told['url']}",
            f"API   curl -H @{web.header_file} {web.told['api']}/operations",
        ]
        with httpx.Client(base_url=web.origin, headers={"origin": web.origin}, timeout=30) as browser:
            ticket = web.told["url"].partition("#ticket=")[2]
            token = {"x-headrace-token": browser.post("/session", json={"ticket": ticket}).json()["token"]}
            up.wait_said("open .*(?<!" + ticket + ")$")
            (process,) = [each for each in up.processes() if each.role == "web"]
            os.kill(process.pid, signal.SIGKILL)
            up.wait_said("web ended .*restarting it(.|\n)*")
            deadline_s = time.monotonic() + 60
            while (status := _status(browser, token)) != 200:
                assert time.monotonic() < deadline_s, status
        assert web.ask("GET", "/me")["user"] == web.told["user"]
        events = web.events("/events")
        assert next(events)[0] == "following"
        up.send(signal.SIGINT)
        assert [(kind, data["type"]) for kind, _, data in events] == [("problem", "urn:headrace:stopping")]
        assert up.wait() == 0
        web.client.close()
        assert "Traceback" not in (up.state / "logs" / "web.log").read_text()
        assert not web.header_file.parent.exists()


def _status(browser: httpx.Client, token: Mapping[str, str]) -> int:
    try:
        return browser.get("/api/v1/me", headers=token).status_code
    except httpx.TransportError:
        return 0


def test_tokens_and_a_service_for_everybody_need_a_cluster_and_a_certificate(up: Up) -> None:
    for words in (("create",), ("list",), ("revoke", "x")):
        assert "headrace cluster init --operator" in up.run("token", *words, expect=4).stderr
    assert "366d" in up.run("token", "create", "--expires", "0s", expect=2).stderr
    with a_web(up) as web:
        forged = web.client.get("/me", headers={"authorization": "Bearer headrace_x"})
        assert (forged.status_code, forged.json()["type"]) == (401, "urn:headrace:not_admitted")
    listen = ("web", "--listen", "127.0.0.1:0")
    assert "--certificate" in up.run(*listen, expect=2).stderr
    key = str(up.state / "server.key")
    assert "a certificate in PEM" in up.run(*listen, "--certificate", key, "--key", key, expect=2).stderr
    assert "ADDRESS:PORT" in up.run("web", "--listen", "here", expect=2).stderr
    assert "--listen" in up.run("web", "--certificate", key, expect=2).stderr


def test_a_large_or_damaged_request_does_no_harm(up: Up) -> None:
    with a_web(up) as web:
        assert web.client.put("/operations", json={}).status_code == 405
        large = json.dumps({"argv": ["x" * 2_000_000]})
        as_json = {"content-type": "application/json"}
        answers = [
            web.client.post("/operations", content=large, headers=as_json),
            web.client.post("/operations", content=b"{" * 500_000, headers=as_json),
            web.client.post("/operations", content=b"\xff\x00", headers=as_json),
            web.client.post("/operations", json={"argv": ["x" * 600_000]}),
            web.client.get("/operations/%00%0d%0a"),
            web.client.get("/operations", params={"pool": "\x00" * 1000}),
        ]
        assert [answer.status_code for answer in answers] == [413, 400, 400, 413, 404, 200]
        assert {answer.headers["content-type"] for answer in answers[:5]} == {"application/problem+json"}
        assert web.ask("GET", "/me")["user"] == web.told["user"]


def test_a_killed_service_is_told_and_comes_back(up: Up) -> None:
    with a_web(up) as web:
        start(web, "before", "true")
        before = {each["service"]: each["pid"] for each in web.ask("GET", "/services")["services"]}
        os.kill(before["admission"], signal.SIGKILL)
        statuses = [web.client.get("/operations/before").status_code]
        deadline_s = time.monotonic() + 60
        while statuses[-1] != 200:
            assert time.monotonic() < deadline_s
            statuses.append(web.client.get("/operations/before").status_code)
        assert set(statuses) <= {200, 503, 504}
        after = {each["service"]: each["pid"] for each in web.ask("GET", "/services")["services"]}
        assert after["admission"] != before["admission"]


@pytest.mark.long
def test_the_script_of_the_page_starts_an_operation_and_reads_its_output(up: Up) -> None:
    *_, script = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    with a_web(up) as web:
        script = re.sub(r"(?m)^api=.*", f"api={web.told['api']}", script)
        script = re.sub(r"(?m)^header=.*", f"header=@{web.header_file}", script)
        said = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True, timeout=60).stdout
    started, *streamed, view = [line for line in said.splitlines() if line]
    assert json.loads(started.partition("}")[0] + "}")["operation"] == "hello-1"
    assert [json.loads(line[6:]).get("text") for line in streamed if line.startswith("data: ")] == [
        "hello",
        "bye",
        None,
    ]
    assert json.loads(view)["state"] == "completed"


@pytest.mark.long
def test_random_requests_find_no_fault_and_no_undocumented_answer(up: Up, tmp_path: Path) -> None:
    with a_web(up) as web:
        done = send_random_requests(web.origin, web.header_file, tmp_path, examples=few_or_many(3, 18), seed=1)
        assert done.returncode == 0, done.stdout[-5000:]
        assert web.ask("GET", "/me")["user"] == web.told["user"]
