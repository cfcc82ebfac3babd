"""The program in JavaScript of the page about the HTTP API, which has no code of ours and no package, run by Node.js."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acceptance.test_web import Served, Web
from tests.support.headrace_up import Up

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "docs" / "examples" / "run.mjs"


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    assert found, "this test needs Node.js: apt-get install nodejs"
    return found


def environment(web: Served, **changed: str) -> Mapping[str, str]:
    return {**os.environ, "API": web.told["api"], "HEADER": str(web.header_file), **changed}


def run(node: str, web: Served, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [node, str(PROGRAM), *words]
    return subprocess.run(argv, env=environment(web), capture_output=True, text=True, timeout=60, check=False)


def test_it_follows_an_operation_reads_its_output_and_ends_with_its_exit_code(node: str, web: Web) -> None:
    words = ("sh", "-c", "echo hellö; echo bad >&2; exit 3")
    done = run(node, web, "hello-1", *words)
    assert (done.stdout, done.returncode) == ("hellö\n", 3)
    *states, said = done.stderr.splitlines()
    assert (states[-1], said) == ("hello-1 is failed", "bad")
    # The same id again starts nothing, and tells the same end.
    again = run(node, web, "hello-1", *words)
    assert (again.stdout, again.returncode) == ("hellö\n", 3)
    assert len([each for each in web.ask("GET", "/operations")["operations"] if each["operation"] == "hello-1"]) == 1

    fine = run(node, web, "hello-2", "echo", "fine")
    assert (fine.stdout, fine.returncode) == ("fine\n", 0)


def test_a_problem_is_printed_and_ends_it(node: str, web: Web) -> None:
    run(node, web, "taken", "true")
    done = run(node, web, "taken", "false")
    assert done.returncode == 1
    assert "taken" in done.stderr


def test_it_goes_on_although_the_web_service_dies() -> None:
    node = shutil.which("node") or ""
    with Up("--web-port", "0") as up:
        up.wait_said("API ")
        web = Served((up.state / "web" / "address.json").read_bytes())
        gate = up.state / "gate"
        words = ("sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done; echo through")
        program = subprocess.Popen(
            [node, str(PROGRAM), "long", *words],
            env=environment(web),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert program.stderr is not None
            while "is running" not in program.stderr.readline():
                assert program.poll() is None
            (process,) = [each for each in up.processes() if each.role == "web"]
            os.kill(process.pid, signal.SIGKILL)
            gate.touch()
            assert (program.communicate(timeout=60)[0], program.returncode) == ("through\n", 0)
        finally:
            program.kill()
            program.communicate()
        web.client.close()


def test_the_page_names_the_program() -> None:
    page = (ROOT / "docs" / "how-to" / "http-api.md").read_text(encoding="utf-8")
    assert PROGRAM.read_text(encoding="utf-8") in page
