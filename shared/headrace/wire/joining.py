"""Messages by which a host joins, and its node's credential is renewed. Secrets stay where they were made."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.ids import NodeName, TreeName
from headrace.wire.nodes import NodeTerms, PublicKey
from headrace.wire.version import Counter

#: A signed word on a key. A server takes no longer one in the first line of a connection.
Word = Annotated[str, msgspec.Meta(max_length=32 * 1024)]


def proof_of(token: str) -> bytes:
    """The words that a host signs to show that it has the key by which it joins. They count for one token, named by its public key."""
    return f"headrace join {token}".encode()


class MakeToken(msgspec.Struct, frozen=True):
    """person → admission: let whoever holds this key join as a node, once."""

    node: NodeName
    #: The public key of the token, whose seed the person hands to the host.
    key: PublicKey
    tree: TreeName = TreeName("default")
    terms: NodeTerms = NodeTerms()


class TokenMade(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The word by which the server lets the holder of the token ask for one thing: to join."""

    jwt: Word
    expires_at_ms: Counter


class Join(msgspec.Struct, frozen=True):
    """host → admission: be this node from now on. The token stands in the subject."""

    #: The public key of the node, whose seed was made on the host and stays there.
    key: PublicKey
    #: The signature of that seed under `proof_of(token)`, without which the host could name the key of another party. Agents of
    #: releases without it cannot join.
    proof: Annotated[bytes, msgspec.Meta(max_length=64)] = b""


class Joined(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The key is the node's. Any other that it had counts no more."""

    node: NodeName
    tree: TreeName
    jwt: Word


class Renew(msgspec.Struct, frozen=True):
    """agent → admission: the node's word is to last longer."""

    node: NodeName
    #: The key that the agent has. Of another one it could not use the word.
    key: PublicKey


class Renewed(msgspec.Struct, frozen=True, tag_field="refusal", tag="none"):
    """The word for the node's key, with the rights that nodes have now."""

    jwt: Word
