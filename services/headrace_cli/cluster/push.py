"""Send a running server the revoked keys of its cluster."""

from __future__ import annotations

from pathlib import Path

from headrace.access.account_authority import OPERATOR_INBOX
from headrace.bus.account_jwt import push_account_jwt
from headrace.client.connecting import open_bus
from headrace.client.place import find_place
from headrace.client.places.endpoint import CREDENTIAL_FILE
from headrace.errors import BadInput
from headrace_cli.cluster.folder import ClusterFolder


async def tell_server(path: Path) -> None:
    """Send the server the account JWT with the revoked keys. Raises `BadInput`, `ClientError`, `BusError`."""
    folder = ClusterFolder(path)
    if not folder.authority.is_dir():
        raise BadInput.because(
            str(path),
            "this cluster has no operator, so its server has no account JWT. `headrace cluster init … --operator` adds an operator",
        )
    operator = folder.operator()
    place = find_place(state=path / "client", credential_file=folder.authority / CREDENTIAL_FILE)
    async with open_bus(place, "headrace cluster push", OPERATOR_INBOX) as bus:
        await push_account_jwt(bus, operator.account, operator.jwt_after)
