"""The command `headrace notify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter

from headrace.client import Client, login_user
from headrace.client.finished import FinishedOperation
from headrace.errors import BadInput
from headrace.runtime.clock import SystemClock
from headrace.runtime.readiness import Readiness
from headrace_cli.exit_statuses import Exit
from headrace_cli.notify.notifier import Message, Notifier, NotifyState
from headrace_cli.notify.rules import Rules
from headrace_cli.notify.rules_file import read_rules
from headrace_cli.outgoing.position_file import PositionFile, locked
from headrace_cli.session import Common, Switch, checked_interval_s, own_readiness, talk
from headrace_cli.show.screen import Screen
from headrace_cli.show.tables import table
from headrace_cli.show.times import parse_timestamp_ms

#: Operation of the example that `--test` sends.
EXAMPLE: Final = FinishedOperation(
    operation="an-example",
    user="",
    pool="research",
    tree="default",
    title="example of a notification",
    program="true",
    state="completed",
    cause="jobs_done",
    reason="",
    started_at_ms=1,
    ended_at_ms=1,
    job_count=1,
    completed_jobs=1,
    failed_jobs=0,
    aborted_jobs=0,
    lost_jobs=0,
    timed_out_jobs=0,
    cpu=1.0,
    memory=0,
    gpu=0,
    ran_ms=1000,
    cpu_ms=1000,
    max_rss_bytes=0,
    is_complete=True,
    position="0.0.0",
)


@Parameter(name="*")
@dataclass(frozen=True)
class Trial:
    """Options for trying the rules. With each of them, no notifications about real occurrences are sent."""

    check: Switch = False
    """Only check the file, and show what it says."""
    test: Switch = False
    """Only send one example to each target, and say whether it was accepted."""
    dry_run: Switch = False
    """Only print what the rules would send now and for the operations that ended since `--since`."""
    since: Annotated[str, Parameter(allow_leading_hyphen=True)] = "1d"
    """Time of `--dry-run`: a duration such as 8h, or a time such as 2026-11-20T18:00."""


def notify(
    rules: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    position: Path | None = None,
    interval: float = 10.0,
    trial: Trial | None = None,
    common: Common | None = None,
) -> int:
    """Send webhooks or mail when operations end, pools starve or nodes are lost.

    A file of rules says which occurrences, of those that you may see, are sent to which targets. Each occurrence is sent once to each
    target of its rule. After a message, a target gets no other message during a pause; everything that happens in the pause is in the
    next message.

    A message that is not accepted is sent again after growing pauses, for a day unless the target says otherwise. The position in the log
    and all that was not delivered yet are in a file, so that nothing is lost when the command is killed and started again; the message that
    was being sent is then repeated with the same `Idempotency-Key` or `Message-ID`. After a minute without the bus the exit status is 3.

    Examples of use:

        headrace notify rules.yaml --check

        headrace notify rules.yaml --dry-run

        headrace notify rules.yaml --test

        headrace notify rules.yaml --position /var/lib/headrace/notify.json

    Parameters
    ----------
    rules
        File of rules in YAML or JSON.
    position
        File that keeps the position and what was not delivered yet. Default: the file of rules with `.position` after its name.
    interval
        Seconds between two looks at pools and nodes.
    """
    trial = trial or Trial()
    if trial.check + trial.test + trial.dry_run > 1:
        raise BadInput.because("notify", "--check, --test and --dry-run cannot be combined")
    interval_s, found = checked_interval_s(interval), read_rules(str(rules))
    screen = Screen(json=common.json if common is not None else False)
    if trial.check:
        _show(found, screen)
        return Exit.DONE
    if trial.test:
        return _send_examples(found, screen)
    readiness = own_readiness()
    path = position or rules.with_name(f"{rules.name}.position")
    since_ms = parse_timestamp_ms(trial.since, place="--since", now_ms=SystemClock().wall_ms())

    async def work(client: Client, screen: Screen) -> None:
        await (
            _print_messages(client, screen, found, since_ms)
            if trial.dry_run
            else _run(client, screen, readiness, found, path, interval_s)
        )

    return talk(common, work, bears_restarts=True, readiness=readiness)


async def _run(
    client: Client, screen: Screen, readiness: Readiness, rules: Rules, path: Path, interval_s: float
) -> None:
    from headrace_cli.notify.service import NotifyService

    with locked(path.with_name(f"{path.name}.lock")):
        service = NotifyService(rules, PositionFile(path, NotifyState, NotifyState()), screen, interval_s)
        readiness.ready(f"notifies {', '.join(rules.targets)}")
        screen.say(f"{len(rules.rules)} rules, {len(rules.targets)} targets; press Ctrl-C to stop")
        await service.run(client)


def _show(rules: Rules, screen: Screen) -> None:
    made = table("rule", "when", "to", "only")
    for rule in rules.rules:
        filters = {name: getattr(rule, name) for name in ("states", "users", "pools", "nodes", "trees")}
        only = "; ".join(f"{name} {', '.join(values)}" for name, values in filters.items() if values)
        made.add_row(rule.name, rule.when.value, ", ".join(rule.to), only)
    answer = {"rules": [rule.name for rule in rules.rules], "targets": list(rules.targets)}
    screen.show(answer, made)


def _send_examples(rules: Rules, screen: Screen) -> int:
    from headrace_cli.notify.sending import attempt_for
    from headrace_cli.outgoing.delivery import Undelivered

    status = Exit.DONE
    for target, message in _messages_about(rules):
        try:
            attempt_for(rules.targets[target], message)()
            screen.say(f"{target} accepted an example", whole=True)
        except Undelivered as error:
            status = Exit.FAILED
            screen.say(f"{target} did not accept an example: {error}", style="red", whole=True)
    return status


def _messages_about(rules: Rules) -> Iterator[tuple[str, Message]]:
    """Yield an example of a message for each target."""
    notifier = Notifier(rules, NotifyState(), 0)
    example = msgspec.structs.replace(EXAMPLE, user=login_user(), ended_at_ms=SystemClock().wall_ms())
    for target in rules.targets:
        notifier.add_example(target, example)
        if (message := notifier.next_message(target)) is not None:
            yield target, message


async def _print_messages(client: Client, screen: Screen, rules: Rules, since_ms: int) -> None:
    """Print the notifications about present conditions, and about operations that ended since a Unix time in milliseconds."""
    from headrace_cli.notify.conditions import look

    notifier = Notifier(rules, NotifyState(), since_ms)
    await look(client, list(rules.rules), notifier, SystemClock().wall_ms())
    async for page in client.finished.pages(since_ms=since_ms):
        for target in rules.targets:
            notifier.on_ended(target, page.operations, page.position, page.lost)
            _print_waiting(notifier, target, screen)


def _print_waiting(notifier: Notifier, target: str, screen: Screen) -> None:
    while (message := notifier.next_message(target)) is not None:
        for each in message.occurrences:
            if screen.json:
                screen.print_line({"target": target, **each.fields()})
            else:
                screen.print_raw(f"{target}: {each.text}")
        notifier.on_delivered(target)
