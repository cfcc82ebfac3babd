"""Bounds on what one person can make a shared web service keep in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from starlette.datastructures import QueryParams

from headrace.access.key_credential import KeyCredential
from headrace.access.token_text import PresentedToken
from headrace.errors import BadInput
from headrace.ids import UserName
from headrace_web.api.context import Context
from headrace_web.api.endpoint import Endpoint
from headrace_web.api.operations import LogRequest, read_logs
from headrace_web.app import _handler
from headrace_web.token_sessions import MOST_AT_ONCE, TokenSession, TokenSessions
from tests.support.clocks import HandClock
from tests.unit.cli.test_render import a_view


class NoFields(msgspec.Struct, frozen=True):
    """A request without fields."""


class Sessions(TokenSessions):
    """Sessions that are admitted without a server. The text of a token is the person and a number."""

    def _read(self, text: str) -> PresentedToken:
        return PresentedToken(UserName(text.partition("-")[0]), KeyCredential(jwt="", seed=""), 2**40)

    async def _run(self, session: TokenSession, token: PresentedToken) -> None:
        session.admit(Context(cast("Any", None), cast("Any", None)))
        await anyio.sleep_forever()


async def test_requests_of_one_person_are_computed_a_few_at_a_time() -> None:
    running: list[str] = []
    go_on = anyio.Event()

    async def compute(context: str, request: NoFields) -> NoFields:
        running.append(context)
        await go_on.wait()
        return request

    compute.__annotations__ = {"context": str, "request": NoFields, "return": NoFields}
    handle = _handler(Endpoint("GET", "/any", compute))

    async def ask(sessions: TokenSessions, text: str) -> None:
        async with sessions.use(text) as session:
            state = SimpleNamespace(context=session.user, turns=session.shared.turns)
            request = SimpleNamespace(state=state, path_params={}, query_params=QueryParams(""), headers={})
            assert (await handle(cast("Any", request))).status_code == 200

    async with anyio.create_task_group() as tasks:
        sessions = Sessions(cast("Any", None), HandClock(), tasks)
        async with anyio.create_task_group() as requests:
            for number in range(3 * MOST_AT_ONCE):
                requests.start_soon(ask, sessions, f"anna-{number % 3}")
            await anyio.wait_all_tasks_blocked()
            assert running == ["anna"] * MOST_AT_ONCE
            requests.start_soon(ask, sessions, "ben-1")
            await anyio.wait_all_tasks_blocked()
            assert running[MOST_AT_ONCE:] == ["ben"]
            go_on.set()
        tasks.cancel_scope.cancel()

    assert running.count("anna") == 3 * MOST_AT_ONCE


@pytest.mark.parametrize(("jobs", "job", "is_refused"), [(1_000, None, False), (1_001, None, True), (10**6, 7, False)])
async def test_the_output_of_very_many_jobs_is_read_job_by_job(jobs: int, job: int | None, is_refused: bool) -> None:
    view = a_view()
    large = msgspec.structs.replace(view, spec=msgspec.structs.replace(view.spec, job_count=jobs))

    async def get(operation: str) -> Any:
        return large

    context = Context(cast("Any", SimpleNamespace(get=get)), cast("Any", None))
    if not is_refused:
        await read_logs(context, LogRequest(large.operation, job))
        return
    with pytest.raises(BadInput, match=r"1001 jobs.* at most 1000 jobs. Name the index of a job"):
        await read_logs(context, LogRequest(large.operation, job))
