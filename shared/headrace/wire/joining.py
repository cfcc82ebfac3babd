"""Messages for a host that joins as a node, and for renewing a node's credential.

The messages carry public keys only; secret keys stay where they were made.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import NodeName, TreeName
from headrace.wire.nodes import NodeTerms, PublicKey
from headrace.wire.version import Counter

#: A JWT: a signed credential for a key. The bound is the longest JWT that a server accepts in the first line of a connection.
CredentialText = Annotated[str, msgspec.Meta(max_length=32 * 1024)]


def proof_of(token: str) -> bytes:
    """Return the bytes that a joining host signs to prove that it holds the node's key.

    The bytes contain the public key of the token, so the signature is valid for this token only.
    """
    return f"headrace join {token}".encode()


class MakeToken(msgspec.Struct, frozen=True):
    """person → admission: allow the holder of this key to join as a node, once."""

    node: NodeName
    #: Public key of the token. The person hands the token's seed to the host.
    key: PublicKey
    tree: TreeName = TreeName("default")
    terms: NodeTerms = NodeTerms()


class TokenMade(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The credential with which the holder of the token may make a single request: to join."""

    jwt: CredentialText
    expires_at_ms: Counter


class Join(msgspec.Struct, frozen=True):
    """host → admission: register this host as the node. The token is part of the subject."""

    #: Public key of the node. Its seed was made on the host and stays there.
    key: PublicKey
    #: Signature of `proof_of(token)`, made with the seed of `key`. Without the signature, a host could join with the public key of another
    #: party. Agents of releases that send no signature cannot join.
    proof: Annotated[bytes, msgspec.Meta(max_length=64)] = b""


class Joined(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The key now belongs to the node. Any other key that the node had is no longer valid."""

    node: NodeName
    tree: TreeName
    jwt: CredentialText


class Renew(msgspec.Struct, frozen=True):
    """agent → admission: extend the validity of the node's credential."""

    node: NodeName
    #: Public key of the agent. The request is refused unless the node joined with this key.
    key: PublicKey


class Renewed(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The new credential for the node's key, with the rights that nodes have at the time of the renewal."""

    jwt: CredentialText
