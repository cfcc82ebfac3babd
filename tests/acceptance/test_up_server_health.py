"""A NATS server that could not write once is started again by `headrace up`, whatever the reason was."""

from __future__ import annotations

import resource

import pytest

from tests.support.headrace_up import Up

pytestmark = pytest.mark.long


def test_a_failed_write_stops_the_server_for_a_moment_only() -> None:
    """The reason is one that shows neither in free bytes nor in free inodes: a limit on the size of files."""
    with Up() as up:
        (server,) = (found.pid for found in up.processes() if found.role == "nats-server")
        _, hard = resource.prlimit(server, resource.RLIMIT_FSIZE)
        resource.prlimit(server, resource.RLIMIT_FSIZE, (0, hard))
        with up.begin("run", "--wait", "--", "true") as sent:
            up.wait_said(r"nothing can be recorded \(.*file too large\)")
            up.wait_said("operations are recorded again")
            assert sent.wait(45.0) == 0
        listed = up.run("service", "list")
        log = (up.state / "logs" / "up.log").read_text()

    assert "trouble" not in listed.stderr
    assert "file too large" in log


@pytest.mark.long
def test_after_a_drain_the_next_up_is_ready_and_says_that_its_node_is_drained() -> None:
    with Up() as up:
        up.run("node", "drain", "alpha")
        up.stop()
        up.start()

        up.wait_said("node alpha is drained and gets no new jobs; `headrace node undrain alpha` ends the drain")
        assert up.run("node", "list").stdout.count("drained") == 1
