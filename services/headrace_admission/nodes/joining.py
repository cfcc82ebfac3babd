"""Joining of hosts: tokens of administrators, the key of each node, and the JWTs that the account signs for both."""

from __future__ import annotations

import anyio
import msgspec

from headrace.access.account_authority import AccountAuthority
from headrace.access.nkeys import is_signed, user_key
from headrace.access.permissions import Party
from headrace.access.routes import PartyKind
from headrace.bus import KeyValue, WrongRevision
from headrace.errors import BadInput
from headrace.ids import NodeName, node_name, tree_name
from headrace.obs.logging import logger
from headrace.pools.rights import Person
from headrace.runtime.engine import Moment
from headrace.wire.joining import Join, Joined, MakeToken, Renew, Renewed, TokenMade, proof_of
from headrace.wire.nodes import NodeRecord
from headrace.wire.refusals import BadRequest, NotFound, Refusal, WrongState
from headrace_admission.nodes.drains import record_in
from headrace_admission.nodes.join_tokens import Keys, Token
from headrace_admission.nodes.revocation import Revocations
from headrace_admission.settings import AdmissionSettings


class Joining:
    """Admission's part of the joining of hosts, if it holds the account's keys. All methods raise `BusError`."""

    def __init__(
        self,
        nodes: KeyValue,
        keys: Keys,
        revocations: Revocations,
        authority: AccountAuthority,
        settings: AdmissionSettings,
    ) -> None:
        self._nodes = nodes
        self._keys = keys
        self._revocations = revocations
        self._authority = authority
        self._settings = settings
        #: Held during a change of a node's key, so that of two requests for one node the second sees the key of the first.
        self._binding = anyio.Lock()

    async def make_token(self, request: MakeToken, by: Person, now: Moment) -> TokenMade | Refusal:
        """Make a token for a public key, on request of an administrator."""
        try:
            node, tree, key = node_name(request.node), tree_name(request.tree), user_key(request.key)
        except BadInput as error:
            return BadRequest.of(error)
        refusal = _why_not(record_in(await self._nodes.get(node)), tree)
        if refusal is not None:
            return refusal
        await self._keys.forget_expired(now.wall_ms)
        wanted = Token(node, tree, request.terms, now.wall_ms + self._settings.token_ms)
        token = await self._keys.add(key, wanted)
        if not isinstance(token, Token):
            return token
        party = Party(kind=PartyKind.HOST, name=key)
        word = self._sign(key, f"token-{node}", party, now, self._settings.token_ms)
        logger().info("token made", node=node, tree=tree, by=by.name, key=key)
        return TokenMade(word, token.expires_at_ms)

    async def join(self, token_key: str, request: Join, now: Moment) -> Joined | Refusal:
        """Assign a key to the node that the token names. The node's previous key is revoked, and its older tokens end.

        If an older token stayed valid, the host that used it could take back the terms that a newer token has changed.
        """
        try:
            key = user_key(request.key)
            is_proven = is_signed(proof_of(token_key), request.proof, key)
        except BadInput as error:
            return BadRequest.of(error)
        if not is_proven:
            # Without the proof, a host could name the key of another party. If the host's node were then shut out, the key of the
            # other party would be revoked.
            return BadRequest.because(
                "proof", f"it is not signed with the key {key}; join with `headrace agent join` of admission's release"
            )
        async with self._binding:
            token = await self._keys.use(token_key, key, now.wall_ms)
            if not isinstance(token, Token):
                return token
            await self._keys.end_tokens(token.node, replaced_by=token_key)
            while True:
                entry = await self._nodes.get(token.node)
                known = record_in(entry)
                refusal = _why_not(known, token.tree)
                if refusal is not None:
                    return refusal
                if known is not None and known.key not in ("", key):
                    await self._revocations.revoke(known.node, known.key)
                fresh = NodeRecord(token.node, token.tree, enrolled_at_ms=now.wall_ms)
                record = msgspec.structs.replace(
                    known or fresh,
                    key=key,
                    terms=token.terms,
                    tags=token.terms.tags,
                    isolated=False,
                    isolation_detail="",
                )
                try:
                    await self._nodes.update(record.node, msgspec.json.encode(record), entry.revision if entry else 0)
                except WrongRevision:
                    continue
                logger().info("node joined", node=record.node, tree=record.tree, key=key)
                return Joined(record.node, record.tree, self._node_word(record, now))

    async def renew(self, request: Renew, now: Moment) -> Renewed | Refusal:
        """Sign a new JWT for the node, for the key that it joined with."""
        record = record_in(await self._nodes.get(request.node))
        if record is None or record.key != request.key:
            return NotFound("node that joined with this key", request.node)
        return Renewed(self._node_word(record, now))

    async def take_out(self, node: NodeName, *, removes: bool) -> None:
        """Revoke the key of a node and end its tokens. With `removes`, delete the record of the node too.

        All of this happens between two joins. If a host joined as the node in between, its record would be deleted and its key would
        stay valid, and the node would enrol again without the terms of its token.
        """
        async with self._binding:
            await self._keys.end_tokens(node)
            record = record_in(await self._nodes.get(node))
            if record is not None and record.key:
                await self._revocations.revoke(node, record.key)
            if removes:
                await self._nodes.delete(node)

    def _node_word(self, record: NodeRecord, now: Moment) -> str:
        party = Party(kind=PartyKind.NODE, name=record.node, tree=record.tree)
        return self._sign(record.key, f"agent-{record.node}", party, now, self._settings.node_credential_ms)

    def _sign(self, key: str, name: str, party: Party, now: Moment, lifetime_ms: int) -> str:
        return self._authority.user_word(key, name, party, now_s=now.wall_ms // 1000, lifetime_s=lifetime_ms // 1000)


def _why_not(known: NodeRecord | None, tree: str) -> WrongState | None:
    """Return the refusal of a token for an existing node, if the node is in another tree or did not join by a token; else None."""
    if known is None or (known.tree == tree and known.key):
        return None
    state = (
        f"in tree {known.tree}" if known.tree != tree else "enrolled with a credential that did not come from a token"
    )
    return WrongState(
        "node",
        known.node,
        state,
        f"a node of tree {tree} that joined by a token, or a node that was removed (`headrace node remove`)",
    )
