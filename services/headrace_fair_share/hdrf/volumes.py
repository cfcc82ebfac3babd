"""What savings are worth at one moment. How they come about is not decided here: volumes are taken as they are."""

from __future__ import annotations

import numpy as np

from headrace_fair_share.hdrf.arrays import Floats, Ints, shares_of

__all__ = ["ratio_by_volume"]


def ratio_by_volume(volume: Floats, total: Ints, smooth_period_s: float) -> Floats:
    """The share of the cluster that could be drawn if the volume were to last for the smooth period."""
    there = (total > 0)[:, 0]
    if not there.any():
        return np.zeros(volume.shape[1])
    ratios: Floats = shares_of(volume, total)[there].min(axis=0) / smooth_period_s
    return ratios
