"""One real server per module; every test speaks on subjects of its own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.nats_server import NatsServer, nats_server


@pytest.fixture(scope="module")
def server() -> Iterator[NatsServer]:
    """A server shared by the tests of a module, so none of them may end it."""
    with nats_server() as running:
        yield running


@pytest.fixture
def word() -> str:
    """A word that no other test uses."""
    return f"t{secrets.token_hex(6)}"
