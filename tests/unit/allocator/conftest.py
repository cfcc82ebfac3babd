"""Every heartbeat in these tests is compared with the plain reference."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def compared(request: pytest.FixtureRequest) -> None:
    """For every module of the folder, except where the lines that run are counted."""
    if not hasattr(request.module, "lines_run"):
        request.getfixturevalue("heartbeats_compared")
