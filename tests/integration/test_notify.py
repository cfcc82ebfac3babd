"""`headrace notify` with a real admission, a real endpoint and a real mail server.

Nothing is lost over a kill, and a dead target delays no other.
"""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread

from headrace_cli.exit_statuses import Exit
from tests.support.ended_operations import World, finish, world
from tests.support.forked_commands import Forked
from tests.support.http_receiver import Received, http_receiver
from tests.support.mail_server import mail_server

T = TypeVar("T")
RULES = """\
targets:
  hook: {webhook: "${HOOK}", headers: {X-Token: "${TOKEN}"}, pause: 0s}
  dead: {webhook: "${DEAD}"}
  owners: {mail: ["{user}@example.com"], from: headrace@example.com, server: "${MAIL}", user: us, password: "${TOKEN}", pause: 0s}
rules:
  all: {when: operation_ended, to: hook}
  failures: {when: operation_ended, states: failed, to: [owners, dead], text: "{operation}: {title} is\\n{state}"}
"""


async def wait(call: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(call)


def notified(received: Received) -> list[str]:
    """The operations of a request."""
    return [each["about"]["operation"] for each in json.loads(received.body)["notifications"]]


async def until_it_runs(it: World) -> Forked:
    """A command that has stored from when on it notifies."""
    running = it.begin("notify", "rules.yaml")
    assert running.stderr is not None
    assert "press Ctrl-C to stop" in await wait(running.stderr.readline)
    return running


async def test_ends_are_sent_by_rules_and_nothing_is_lost_over_a_kill(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, mail_server(tmp_path) as mail, http_receiver() as hook:
        async with world() as it:
            dead = f"http://127.0.0.1:{silent.getsockname()[1]}"
            it.more = {"HOOK": hook.url, "DEAD": dead, "MAIL": mail.address, "SSL_CERT_FILE": str(mail.authority)}
            (it.state / "rules.yaml").write_text(RULES)
            await finish(it.server, "too-early")
            with await until_it_runs(it) as notifier:
                await finish(it.server, "one", fails=True, user="ben")
                first = await wait(hook.next)
                recipients, message = await wait(mail.next)
                hook.answer = lambda _: 503
                await finish(it.server, "two")
                refused = await wait(hook.next)
                notifier.kill()
            await finish(it.server, "three")
            hook.answer = lambda _: 204
            with await until_it_runs(it) as notifier:
                again = await wait(hook.next)
                while again.headers["idempotency-key"] != refused.headers["idempotency-key"]:
                    again = await wait(hook.next)
                third = await wait(hook.next)
                # Nothing answers at `dead`, where an attempt is under way.
                notifier.send_signal(signal.SIGINT)
                assert await wait(notifier.wait) == Exit.INTERRUPTED

    assert (notified(first), notified(again), notified(third)) == (["one"], ["two"], ["three"])
    assert again.body == refused.body
    assert first.headers["x-token"] == "secret-of-the-test"
    assert json.loads(first.body)["text"].startswith("operation one of ben in pool research failed at ")
    assert recipients == ["ben@example.com"]
    assert message["Subject"] == "Headrace: one: =1+ben is failed"
    assert message["Auto-Submitted"] == "auto-generated"
    assert str(message.get_payload()).split() == ["one:", "=1+ben", "is", "failed"]
    assert mail.logins == [b"secret-of-the-test"]
    assert mail.is_empty


async def test_an_address_that_the_mail_server_refuses_is_dropped_and_said(tmp_path: Path) -> None:
    with mail_server(tmp_path) as mail:
        async with world() as it:
            mail.refused = {"ghost@example.com"}
            unused = "http://127.0.0.1:9"
            it.more = {"HOOK": unused, "DEAD": unused, "MAIL": mail.address, "SSL_CERT_FILE": str(mail.authority)}
            (it.state / "rules.yaml").write_text(RULES.replace("[owners, dead]", "owners"))
            with await until_it_runs(it) as notifier:
                await finish(it.server, "one", fails=True, user="ghost")
                await finish(it.server, "two", fails=True, user="ben")
                recipients, message = await wait(mail.next)
                notifier.kill()
                said = notifier.stderr.read() if notifier.stderr else ""

    assert recipients == ["ben@example.com"]
    assert "1 earlier notifications could not be delivered" in str(message.get_payload())
    assert "a message to owners is dropped: the server refuses the addresses: 550 for ghost@example.com" in said


async def test_rules_are_checked_tried_and_shown_without_sending(tmp_path: Path) -> None:
    with mail_server(tmp_path) as mail, http_receiver() as hook:
        async with world() as it:
            it.more = {"HOOK": hook.url, "DEAD": hook.url, "MAIL": mail.address, "SSL_CERT_FILE": str(mail.authority)}
            rules = it.state / "rules.yaml"
            rules.write_text(RULES)
            await finish(it.server, "one", fails=True)
            shown = await it.run("notify", "rules.yaml", "--dry-run", "--json")
            checked = await it.run("notify", "rules.yaml", "--check")
            assert hook.count == 0
            assert mail.is_empty
            await it.run("notify", "rules.yaml", "--test")
            await wait(mail.next)
            hook.answer = lambda _: 410
            failed = await it.run("notify", "rules.yaml", "--test", expect=Exit.FAILED)
            rules.write_text(RULES.replace("operation_ended", "operation_over", 1))
            refused = await it.run("notify", "rules.yaml", "--check", expect=Exit.USAGE)

    found: list[dict[str, Any]] = [json.loads(line) for line in shown.stdout.splitlines()]
    assert sorted((each["target"], each["about"]["operation"]) for each in found) == [
        ("dead", "one"),
        ("hook", "one"),
        ("owners", "one"),
    ]
    assert "failures" in checked.stdout
    assert "hook did not accept an example: it answers 410 Gone" in failed.stderr
    assert "owners accepted an example" in failed.stderr
    assert "rules.yaml:6: rules.all.when: operation_over cannot be used" in refused.stderr
