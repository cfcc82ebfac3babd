"""One stack for all tests of this folder: it takes some seconds to come up."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.stack import Stack, agent, running_stack


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix="hr-") as folder, running_stack(Path(folder)) as running:
        yield running


@pytest.fixture(scope="session")
def host(stack: Stack) -> Iterator[Path]:
    """A host outside of all containers that has joined, with one core. Its jobs share this folder with the tests."""
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        place = Path(folder)
        token = stack.token("outside", "--tag", "outside", "--cpu", "1")
        with agent(stack, token, place / "state", HEADRACE_AGENT_CPU="1", HEADRACE_AGENT_TAGS="outside"):
            yield place
