"""Importing nats-py's client without its JetStream half, which takes longer to import than the client and is not used here.

`headrace.bus.nats.streams` speaks JetStream itself. nats-py's client imports two modules that take long to import, and uses little of them:
from its JetStream half the names of three headers, and from `importlib.metadata` the version of nats-py. This module reads that version
from the name of a folder.
"""

from __future__ import annotations

import importlib
import sys
from enum import StrEnum
from types import ModuleType

_NAME = "nats.js"
_METADATA = "importlib.metadata"


class Header(StrEnum):
    """The headers whose names the client looks up in `nats.js.api`."""

    CONSUMER_STALLED = "Nats-Consumer-Stalled"
    DESCRIPTION = "Description"
    STATUS = "Status"


class _StandIn(ModuleType):
    """A placeholder for a module. If an attribute is requested that the placeholder does not have, it imports the real module."""

    def __getattr__(self, name: str) -> object:
        from pkgutil import resolve_name

        return getattr(resolve_name(self.__name__), name)


def _version(distribution: str) -> str:
    """Return the version of a distribution that is installed beside nats-py. Raises `LookupError` if it is not installed."""
    from importlib.util import find_spec
    from pathlib import Path

    found = find_spec("nats")
    beside = Path(found.origin).parents[1] if found is not None and found.origin else Path()
    for folder in beside.glob(f"{distribution.replace('-', '_')}-*.dist-info"):
        return folder.stem.partition("-")[2]
    raise LookupError(distribution)


def import_client() -> None:
    """Import nats-py's client. The full `nats.js` is imported when some code uses an attribute that the placeholder
    does not have.
    """
    if "nats" in sys.modules:
        return
    header, api, jetstream = _StandIn(f"{_NAME}.api.Header"), _StandIn(f"{_NAME}.api"), _StandIn(_NAME)
    vars(header).update(Header.__members__)
    vars(api)["Header"] = header
    vars(jetstream)["api"] = api
    metadata = ModuleType(_METADATA)
    vars(metadata)["version"] = _version
    stands_in = sys.modules.setdefault(_METADATA, metadata) is metadata
    sys.modules[_NAME] = jetstream
    try:
        client = importlib.import_module("nats")
    finally:
        del sys.modules[_NAME]
        if stands_in:
            del sys.modules[_METADATA]
    vars(client)["js"] = jetstream
