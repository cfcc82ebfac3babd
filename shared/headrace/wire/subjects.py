"""All subjects of the bus, in one place. The caller stands in the subject, where the server's permissions fix it.

Inboxes carry their owner too, so that an answer goes only to the party that the subject names: `_INBOX.user.<user>.`,
`_INBOX.node.<node>.`, `_INBOX.service.<service>.`, and `_INBOX.host.<token>.` of a host that is about to join.
"""

from __future__ import annotations

from headrace.ids import NodeName, OperationId, TreeName, UserName

_V1 = "headrace.v1"

#: The stream of operation events and the one subject it records.
STREAM = "HEADRACE_OPERATIONS"
LOG = f"{_V1}.log.operations"

POOLS_BUCKET = "headrace_pools"
#: Values of each tree that are kept in it.
POOLS_HISTORY = 64
NODES_BUCKET = "headrace_nodes"
#: The public keys of tokens, and of nodes that were removed.
KEYS_BUCKET = "headrace_keys"
#: The longest lease that nodes of each tree may have been told.
NODE_LEASES_BUCKET = "headrace_node_leases"
TERMS_BUCKET = "headrace_terms"
LEASES_BUCKET = "headrace_leases"
VOLUMES_BUCKET = "headrace_volumes"
CHECKPOINT_BUCKET = "headrace_checkpoint"
CLOCKS_BUCKET = "headrace_clocks"
#: The archives that people sent, and their pieces.
ARCHIVES_BUCKET = "headrace_archives"
PIECES_BUCKET = "headrace_pieces"

#: Scatter: everybody who has seen a term of the role answers.
WHO = f"{_V1}.who"
#: Scatter: every service answers its figures.
FIGURES = f"{_V1}.figures"
#: admission tells the other services what the log recorded, commands and environments with it.
EVENTS = f"{_V1}.events"
#: admission tells people what happened by the log, and nothing that is for an operation's owner alone.
HAPPENINGS = f"{_V1}.happenings"
#: A reader asks admission for all live operations.
OPERATIONS_WHOLE = f"{_V1}.operations.whole"
#: The allocator of a tree tells those of other trees, of which operations in several trees it could run jobs at once.
WANTED = f"{_V1}.wanted"
#: The allocator asks admission's ledger; the verb follows.
LEDGER = f"{_V1}.ledger"
#: An agent asks admission to be enrolled; the node follows.
ENROL = f"{_V1}.enrol"
#: A host asks admission to join; the public key of its token follows.
JOIN = f"{_V1}.join"
#: An agent asks admission for a credential that lasts longer; the node follows.
RENEW = f"{_V1}.renew"


def copies_of(bucket: str) -> str:
    """The bucket of the copies of a bucket's values."""
    return f"{bucket}_copies"


def heartbeat(tree: TreeName | str, node: NodeName | str) -> str:
    """node → allocator of its tree, request."""
    return f"{_V1}.{tree}.hb.{node}"


def nudge(node: NodeName | str) -> str:
    """allocator → node: a heartbeat is wanted at once."""
    return f"{_V1}.cmd.{node}.nudge"


def share(tree: TreeName | str) -> str:
    """fair_share publishes parts of share snapshots."""
    return f"{_V1}.{tree}.share"


def share_whole(tree: TreeName | str) -> str:
    """reader → fair_share, request: a page of the whole snapshot."""
    return f"{_V1}.{tree}.share.whole"


def usage(tree: TreeName | str) -> str:
    """allocator publishes parts of usage snapshots."""
    return f"{_V1}.{tree}.usage"


def usage_whole(tree: TreeName | str) -> str:
    """reader → allocator, request: a page of the whole snapshot."""
    return f"{_V1}.{tree}.usage.whole"


def decisions(tree: TreeName | str) -> str:
    """allocator publishes what it gave and took, for those who follow it."""
    return f"{_V1}.{tree}.decisions"


def history(tree: TreeName | str) -> str:
    """fair_share → stream `history_stream`: samples of the tree's pools."""
    return f"{_V1}.{tree}.history"


def history_stream(tree: TreeName | str) -> str:
    """The stream that keeps a tree's samples for a while."""
    return f"HEADRACE_HISTORY_{tree}"


def integral_advance(tree: TreeName | str) -> str:
    """fair_share → integral, request."""
    return f"{_V1}.{tree}.integral.advance"


def integral_volumes(tree: TreeName | str) -> str:
    """anybody → integral, request: the volumes as they are."""
    return f"{_V1}.{tree}.integral.volumes"


def ledger(verb: str) -> str:
    """allocator → admission, with the verbs `attach`, `draw`, `return`, `report`, `released`."""
    return f"{LEDGER}.{verb}"


def enrol(node: NodeName | str) -> str:
    """agent → admission, request."""
    return f"{ENROL}.{node}"


def log_reader(node: NodeName | str) -> str:
    """agent → admission, request: may a person read what jobs of an operation wrote?"""
    return f"{_V1}.log_reader.{node}"


def join(token: str) -> str:
    """host → admission, request, with the public key of its token."""
    return f"{JOIN}.{token}"


def renew(node: NodeName | str) -> str:
    """agent → admission, request."""
    return f"{RENEW}.{node}"


def fetch_piece(node: NodeName | str) -> str:
    """agent → admission, request: a piece of the files of an operation."""
    return f"{_V1}.fetch_piece.{node}"


def ask_over(node: NodeName | str) -> str:
    """agent → admission, request: which operations are over, so that their files may go?"""
    return f"{_V1}.ask_over.{node}"


def give_up_node(tree: TreeName | str) -> str:
    """admission → allocator, request: a node is to be removed."""
    return f"{_V1}.{tree}.node.give_up"


def operation_view(user_: UserName | str, operation: OperationId | str) -> str:
    """admission publishes an operation's view to its user whenever it changed, without its command."""
    return f"{_V1}.view.{user_}.{operation}"


def user(user_: UserName | str, verb: str) -> str:
    """person → service, request. Verbs are dotted (`op.start`, `pool.create`, `node.list.<tree>`, `job.logs.<node>`)."""
    return f"{_V1}.user.{user_}.{verb}"


def of_tree(verb: str, tree: TreeName | str) -> str:
    """The verb of `user` that only the allocator of this tree answers: `node.list`, `op.where` or `preemption.observed`."""
    return f"{verb}.{tree}"


def inbox(kind: str, name: str) -> str:
    """The inbox prefix of a party. `kind` is `user`, `node`, `host` or `service`."""
    return f"_INBOX.{kind}.{name}"


#: The queue group in which a person listens for answers. They may do so in no other, so that the server delivers each answer once,
#: however many subscriptions and connections a person has.
INBOX_QUEUE = "one"
_ASKED = ".asked."


def asks_from(inbox_: str) -> str:
    """Where a person wants the answer, before a last token. The server itself says there that nobody serves a request.

    It never says so to a queue group, so answers come elsewhere: see `answers_at`.
    """
    return f"{inbox_}{_ASKED[:-1]}"


def answers_at(reply: str) -> str:
    """The subject for the answer to a request that wants it at `reply`: another one where that was made by `asks_from`."""
    return reply.replace(_ASKED, ".answered.") if _ASKED in reply and reply.startswith("_INBOX.user.") else reply


def nth(subject: str, place: int) -> str:
    """The token at `place` (0 is `headrace`), empty where there is none."""
    tokens = subject.split(".")
    return tokens[place] if place < len(tokens) else ""
