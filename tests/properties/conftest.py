"""Every heartbeat in these tests is compared with the plain reference."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def compared(heartbeats_compared: None) -> None:
    """For every module of the folder."""
