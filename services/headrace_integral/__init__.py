"""Integral guarantees: the accumulated volumes of the burst and relaxed pools of one tree."""
