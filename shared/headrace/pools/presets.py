"""Presets: settings that pools take from their tree by name. Pure.

A pool's own settings take precedence over its presets. An earlier preset takes precedence over a later preset.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from headrace.errors import BadInput
from headrace.pools.attributes.kinds import Defects
from headrace.pools.attributes.pool_attributes import PRESET_ATTRIBUTES
from headrace.pools.pool_config import PoolConfig
from headrace.pools.tree_options import TreeOptions
from headrace.suggestions import hint


def preset_names(settings: PoolConfig) -> tuple[str, ...]:
    """Return the names of the presets that a pool uses, in order of precedence."""
    return settings.config_presets or ((settings.config_preset,) if settings.config_preset is not None else ())


def with_presets(settings: PoolConfig, options: TreeOptions) -> PoolConfig:
    """Return the configuration, completed from the presets that it names.

    A preset that cannot be used adds nothing.
    """
    for name in preset_names(settings):
        preset = options.pool_config_presets.get(name)
        if preset is None:
            continue
        try:
            read = _read(msgspec.json.encode(preset))
        except Defects:
            continue
        lacking = {
            key: getattr(read, key)
            for key in PRESET_ATTRIBUTES.attributes
            if PRESET_ATTRIBUTES.is_set(read, key) and not PRESET_ATTRIBUTES.is_set(settings, key)
        }
        settings = msgspec.structs.replace(settings, **lacking)
    return settings


def preset_problems(settings: PoolConfig, options: TreeOptions) -> list[BadInput]:
    """Return the problems of the presets that a pool names.

    A preset may be missing, hold an option that is not allowed in a preset, or hold a bad value.
    """
    return [problem for name in preset_names(settings) for problem in problems_of_preset(name, options)]


def problems_of_preset(name: str, options: TreeOptions) -> list[BadInput]:
    """Return the problems because of which a preset cannot be used."""
    known = options.pool_config_presets
    if name not in known:
        return [
            BadInput("config_presets", name, hint(name, known))
            if known
            else BadInput.because("config_presets", f"there is no preset {name}: the tree has no presets")
        ]
    return PRESET_ATTRIBUTES.usable(PoolConfig(), known[name], f"pool_config_presets.{name}")[1]


@lru_cache(maxsize=256)
def _read(preset: bytes) -> PoolConfig:
    plain: dict[str, Any] = msgspec.json.decode(preset)
    value: PoolConfig = PRESET_ATTRIBUTES.changed(PoolConfig(), plain).value
    return value
