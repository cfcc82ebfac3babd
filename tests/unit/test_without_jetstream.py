"""nats-py's client is imported without its JetStream half, and finds there what it looks for all the same."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import subprocess
import sys

import nats.aio.client
import nats.js.api
import pytest

from headrace.bus.nats.without_jetstream import Header


def printed(code: str) -> str:
    """By a Python of its own, in which nothing is imported yet."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_bus_imports_no_jetstream_of_nats_py() -> None:
    assert (
        printed("import headrace.bus, sys; print([name for name in sys.modules if name.startswith('nats.js')])") == "[]"
    )


def test_the_client_knows_its_version_without_the_metadata_of_all_packages() -> None:
    code = "import headrace.bus, sys; print('importlib.metadata' in sys.modules, sys.modules['nats.aio.client'].__version__)"

    assert printed(code) == f"False {importlib.metadata.version('nats-py')}"


def test_the_client_asks_the_other_half_for_no_header_that_is_not_there() -> None:
    asked = set(re.findall(r"nats\.js\.(?!JetStream)([\w.]+)", inspect.getsource(nats.aio.client)))

    assert {name.removeprefix("api.Header.").removesuffix(".value") for name in asked} == set(Header.__members__)
    assert {name: nats.js.api.Header[name].value for name in Header.__members__} == dict(Header.__members__)


@pytest.mark.parametrize(
    "name", ["JetStreamContext", "errors.KeyNotFoundError", "api.StreamConfig", "api.Header.MSG_ID"]
)
def test_whoever_asks_for_more_of_it_gets_it(name: str) -> None:
    assert name.rpartition(".")[2] in printed(f"import headrace.bus, nats; print(repr(nats.js.{name}))")
