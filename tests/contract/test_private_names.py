"""The private names of nats-py that the bus layer uses. pyproject.toml binds nats-py to the minor version that this list was made from."""

from __future__ import annotations

import ast
import importlib.metadata
import tomllib
from pathlib import Path

from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

ROOT = Path(__file__).parents[2]
BUS = ROOT / "shared" / "headrace" / "bus" / "nats"

#: Instance attributes and methods of nats-py's client, its subscriptions and its transport.
OF_CLIENT = {
    "_flush_pending",
    "_parse_server_uri",
    "_pending",
    "_pending_data_size",
    "_reading_task",
    "_reconnection_task",
    "_remove_sub",
    "_send_unsubscribe",
    "_server_pool",
    "_transport",
}
OF_SUBSCRIPTION = {"_id", "_max_msgs"}
OF_TRANSPORT = {"_io_writer"}


def used() -> set[str]:
    """Private names that the layer looks up in anything but its own instances, by a dot or by `getattr`."""
    found: set[str] = set()
    for path in BUS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Name("self" | "cls")):
                    continue
                case (
                    ast.Attribute(attr=name) | ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), *_])
                ):
                    found |= {name} if name.startswith("_") and not name.startswith("__") else set()
    return found


def test_the_private_names_that_are_used_are_those_of_the_list() -> None:
    assert used() == OF_CLIENT | OF_SUBSCRIPTION | OF_TRANSPORT


async def test_nats_py_has_each_private_name() -> None:
    client = Client()
    subscription = Subscription(client, 1, "subject")

    assert {name for name in OF_CLIENT if not hasattr(client, name)} == set()
    assert {name for name in OF_SUBSCRIPTION if not hasattr(subscription, name)} == set()
    assert {name for name in OF_TRANSPORT if not hasattr(TcpTransport(), name)} == set()  # type: ignore[no-untyped-call]


def test_nats_py_is_bound_to_the_minor_version_that_is_installed() -> None:
    major, minor, *_ = importlib.metadata.version("nats-py").split(".")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert f"nats-py>={major}.{minor},<{major}.{int(minor) + 1}" in project["dependencies"]
