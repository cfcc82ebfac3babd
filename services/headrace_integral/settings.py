"""Settings of the integral service."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.runtime.settings import CommonSettings


class IntegralSettings(CommonSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keeps the accumulated volumes of a tree's burst and relaxed pools."""

    #: Number of advances that may wait while another one is being saved. Only one process sends advances, so if many of them wait, they are
    #: repetitions.
    waiting_advances: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1_000
