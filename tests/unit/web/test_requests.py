"""Requests of the HTTP API: what is read from path, query and body, and what is said of a value that cannot be used."""

from __future__ import annotations

import typing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from headrace.client.run_options import RunOptions, operation_spec
from headrace.errors import BadInput
from headrace.wire.heartbeat import JobResult
from headrace.wire.operation_spec import OperationSpec
from headrace_web.api.context import Context
from headrace_web.api.operations import ListedJobs, ListedOperations, LogRequest, Streams, _spec, refuse_relative_paths
from headrace_web.api.people import UsageRequest
from headrace_web.api.pools import Changes
from headrace_web.api.requests import read_request
from headrace_web.api.start_request import StartRequest, options_of
from headrace_web.api.table import ENDPOINTS


def test_a_query_is_read_with_switches_numbers_and_lists() -> None:
    read = read_request(ListedOperations, {}, [("live", "true"), ("limit", "7"), ("pool", "a b/ü")], None)
    assert (read.live, read.limit, read.pool) == (True, 7, "a b/ü")
    several = [("results", "failed,timed_out"), ("results", "lost"), ("cursor", "20")]
    jobs = read_request(ListedJobs, {"operation": "one"}, several, None)
    assert (jobs.operation, jobs.cursor) == ("one", 20)
    assert jobs.results == [JobResult.FAILED, JobResult.TIMED_OUT, JobResult.LOST]
    assert read_request(LogRequest, {"operation": "1"}, [("job", "3"), ("stream", "both")], None).stream is Streams.BOTH


@pytest.mark.parametrize(
    ("kind", "query", "body", "words"),
    [
        (ListedOperations, [("limit", "a")], None, "limit: 'a' cannot be used; expected a whole number"),
        (ListedOperations, [("limit", "501")], None, "limit: '501' cannot be used; expected a whole number, at most 500"),
        (ListedOperations, [("limt", "1")], None, "query: 'limt' cannot be used; did you mean limit?"),
        (ListedOperations, [("live", "x")], None, "live: 'x' cannot be used; expected true or false"),
        (ListedOperations, [("limit", "1"), ("limit", "2")], None, "limit: '1, 2' cannot be used; expected one value"),
        (ListedOperations, [("order", "sarted")], None, "order: 'sarted' cannot be used; did you mean started?"),
        (UsageRequest, [("since", "x"), ("until", "2026-01-01")], None, "since: 'x' cannot be used; expected a day such as 2026-11-28"),
        (UsageRequest, [("since", "2026-01-01")], None, "until: this field is required"),
        (Changes, [], b"", "changes: this field is required"),
        (Changes, [], b'{"changes":[{"change":"sett"}]}', "changes[0].change: 'sett' cannot be used; did you mean set?"),
        (Changes, [], b'{"changes":[]}', "changes: [] cannot be used; expected a list of at least 1 entries"),
        (Changes, [], b'{"changes":1', "body: '{\"changes\":1' cannot be used; expected a JSON object (Input data was truncated)"),
        (Changes, [], b"\xff", "body: '\ufffd' cannot be used; expected a JSON object"),
        (Changes, [], b"[" * 100_000, "body: '" + "[" * 100 + "' cannot be used; expected a JSON object"),
        (Changes, [], b"[]", "body: [] cannot be used; expected a JSON object"),
        (Changes, [("dry_run", "true")], b"{}", "query: dry_run: this request takes its fields from the body"),
        (StartRequest, [], b'{"argv":["x"],"jbs":3}', "body: 'jbs' cannot be used; did you mean jobs?"),
        (StartRequest, [], b'{"argv":["x"],"jobs":"3"}', "jobs: '3' cannot be used; expected a whole number or null"),
        (StartRequest, [], b'{"argv":"x"}', "argv: 'x' cannot be used; expected a list"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_place_and_what_is_accepted(
    kind: type[msgspec.Struct], query: list[tuple[str, str]], body: bytes | None, words: str
) -> None:
    with pytest.raises(BadInput) as refused:
        read_request(kind, {}, query, body)
    assert str(refused.value).startswith(words)


def test_a_start_has_all_options_of_run_that_json_can_express() -> None:
    named = set(StartRequest.__struct_fields__) - {"argv", "operation"}
    assert named == set(typing.get_type_hints(RunOptions)) - {"files"}
    body = {
        "argv": ["work", "{}"], "lines": ["a", "b"], "memory": "1G", "cpu": 0.5, "pool": "research", "after": ["one:any"],
        "preemption_mode": "graceful", "keep_going": None, "environment": {"A": "1"}, "working_directory": "/tmp",
    }  # fmt: skip
    request = read_request(StartRequest, {}, (), msgspec.json.encode(body))
    options = {name: value for name, value in body.items() if name != "argv"}
    assert options_of(request) == options
    spec = operation_spec(request.argv, **options_of(request))
    assert (spec.job_count, spec.resources.cpu, spec.resources.memory) == (2, 50, 2**30)


@pytest.mark.parametrize(
    ("field", "value"),
    [("working_directory", "data"), ("working_directory", "~/data"), ("image", "./a.sif"), ("image", "a.sif")],
)
def test_a_path_that_only_the_folder_of_the_service_would_complete_is_refused(field: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"{field}.*absolute path"):
        refuse_relative_paths({"working_directory": "", field: value})


@pytest.mark.parametrize("image", ["/images/a.sif", "alpine:3", "registry.example/a.sif:1", None])
def test_absolute_paths_and_names_of_images_are_accepted(image: str | None) -> None:
    refuse_relative_paths({"working_directory": "/data", "image": image})


async def test_a_refusal_tells_nothing_about_the_files_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def named_in(spec: OperationSpec) -> OperationSpec:
        return spec

    (tmp_path / "secret.sh").touch()
    monkeypatch.chdir(tmp_path)
    client = SimpleNamespace(pools=SimpleNamespace(named_in=named_in), place=SimpleNamespace(tree="default"))
    request = read_request(StartRequest, {}, (), b'{"argv": ["secret.sh"]}')

    spec = await _spec(Context(cast("Any", client), cast("Any", None)), request)
    assert spec.argv == ["secret.sh"]


def test_the_paths_of_the_table_name_fields_and_no_two_endpoints_collide() -> None:
    seen = set()
    for endpoint in ENDPOINTS:
        assert set(endpoint.in_path) <= set(endpoint.request.__struct_fields__), endpoint.path
        assert endpoint.description, endpoint.name
        seen.add((endpoint.method, endpoint.path))
    assert len(seen) == len({endpoint.name for endpoint in ENDPOINTS}) == len(ENDPOINTS)
