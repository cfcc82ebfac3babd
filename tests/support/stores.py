"""Buckets and streams for services that run as processes of their own, which make none."""

from __future__ import annotations

from headrace.bus import connect
from headrace.bus.provisioning import provision
from headrace.ids import TreeName

__all__ = ["provision_stores"]


async def provision_stores(*urls: str) -> None:
    """All that the services of the tree `default` need, on a server that asks for no credential."""
    async with connect(urls, name="provisioner") as bus:
        await provision(bus, [TreeName("default")])
