"""docs/how-to/export.md and docs/how-to/notifications.md, typed from top to bottom, and the notifications about pools and nodes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.headrace_up import Up
from tests.support.http_receiver import http_receiver
from tests.support.typed_pages import typed

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
RULES = """\
targets:
  hook: {webhook: "${HOOK}", pause: 0s}
rules:
  starving: {when: pool_starves, pools: /idle, to: hook}
  nodes: {when: node_lost, for: 0s, to: hook}
"""


@pytest.mark.long
def test_operations_are_exported_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Up() as up:
        said = typed(up, HOW_TO / "export.md")
        lines = (up.state / "ended.jsonl").read_text().splitlines()
        with up.begin("export", "operations", "--follow") as exporter:
            assert exporter.stdout is not None
            goes_on = [json.loads(exporter.stdout.readline())["operation"] for _ in range(2)]
            (admission,) = [each for each in up.processes() if each.role == "admission"]
            os.kill(admission.pid, signal.SIGKILL)
            up.run_until_answered("run", "--id", "through-a-kill", "--wait", "--", "true")
            goes_on.append(json.loads(exporter.stdout.readline())["operation"])
            exporter.kill()

    assert [json.loads(line)["operation"] for line in lines] == ["exported-one", "exported-two"]
    assert goes_on == ["exported-one", "exported-two", "through-a-kill"]
    assert [json.loads(line)["operation"] for line in said["export operations"].splitlines()] == ["exported-one"]


@pytest.mark.long
def test_rules_are_checked_and_shown_as_the_page_says() -> None:
    variables = {"OPERATORS_WEBHOOK": "http://127.0.0.1:9/", "OPERATORS_TOKEN": "t", "MAIL_PASSWORD": "p"}
    with Up() as up:
        up.environment |= variables
        said = typed(up, HOW_TO / "notifications.md")

    assert "owners: notified-one" in said["notify rules.yaml --dry-run --since 1h"]
    assert "nightly-*" in said["notify rules.yaml --check"]


@pytest.mark.long
def test_a_pool_that_starves_and_a_node_that_is_lost_are_notified_once() -> None:
    with http_receiver() as hook, Up(nodes=("alpha:cpu=1,memory=1G", "beta:cpu=1,memory=1G")) as up:
        up.environment |= {"HOOK": hook.url}
        (up.state / "rules.yaml").write_text(RULES)
        up.stop()
        up.nodes = ("alpha:cpu=1,memory=1G",)
        up.start()
        up.run("tree", "set", "default", "preemption=off", "fair_share_starvation_timeout=1s")
        runs = up.start_operation("--pool", "full", "--", "sh", "-c", "echo up; sleep 600")
        up.wait_line(runs, "up")
        up.start_operation("--pool", "idle", "--", "true")
        notified: list[dict[str, Any]] = []
        for _ in range(2):
            with up.begin("notify", "rules.yaml", "--interval", "0.2") as notifier:
                assert notifier.stderr is not None
                assert "press Ctrl-C to stop" in notifier.stderr.readline()
                while len(notified) < 2:
                    notified += json.loads(hook.next().body)["notifications"]
                # The second run finds the same pool and node, and says nothing.
                for _ in range(5):
                    up.run("pool", "list")
                notifier.kill()

    assert {each["kind"]: each["about"]["tree"] for each in notified} == {
        "pool_starves": "default",
        "node_lost": "default",
    }
    assert hook.requests.empty()
    (starving,) = [each for each in notified if each["kind"] == "pool_starves"]
    assert (starving["about"]["path"], starving["about"]["short_of"]) == ("/idle", "fair share")
    assert "node beta of tree default is unheard" in next(
        each["text"] for each in notified if each["kind"] == "node_lost"
    )
