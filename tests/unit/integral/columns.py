"""Volumes as columns, and back."""

from __future__ import annotations

import numpy as np

from headrace.wire.integral import Volume
from headrace_integral.volumes import Floats

__all__ = ["columns", "volumes_of"]


def columns(*volumes: Volume) -> Floats:
    parts = [(each.user_slots, each.cpu, each.gpu, each.memory, each.network) for each in volumes]
    return np.array(parts, np.float64).reshape(-1, 5).T


def volumes_of(figures: Floats) -> list[Volume]:
    assert not (figures[1] % 1.0).any(), "cpu is counted in whole hundredths"
    return [Volume(slots, int(cpu), gpu, memory, network) for slots, cpu, gpu, memory, network in figures.T.tolist()]
