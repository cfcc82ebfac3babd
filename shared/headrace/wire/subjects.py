"""All subjects of the bus, in one module.

The subject of a request contains the name of its sender, and the server lets each sender use only its own name. An inbox contains the name
of its owner, so that only this owner receives the answer: `_INBOX.user.<user>.`, `_INBOX.node.<node>.`, `_INBOX.service.<service>.`, and
`_INBOX.host.<token>.` for a host that is about to join.
"""

from __future__ import annotations

from headrace.ids import NodeName, OperationId, TreeName, UserName

_V1 = "headrace.v1"

#: The stream of operation events.
STREAM = "HEADRACE_OPERATIONS"
#: The only subject that the stream records.
LOG = f"{_V1}.log.operations"

POOLS_BUCKET = "headrace_pools"
#: Number of values that the bucket of pools keeps for each tree.
POOLS_HISTORY = 64
NODES_BUCKET = "headrace_nodes"
#: Bucket of the public keys of tokens, and of the public keys of removed nodes.
KEYS_BUCKET = "headrace_keys"
#: Bucket of the longest lease that nodes of each tree may have been given.
NODE_LEASES_BUCKET = "headrace_node_leases"
#: Bucket of groups of people.
GROUPS_BUCKET = "headrace_groups"
TERMS_BUCKET = "headrace_terms"
LEASES_BUCKET = "headrace_leases"
VOLUMES_BUCKET = "headrace_volumes"
CHECKPOINT_BUCKET = "headrace_checkpoint"
CLOCKS_BUCKET = "headrace_clocks"
#: Bucket of the records of what finished runs consumed.
CONSUMPTION_BUCKET = "headrace_consumption"
#: Bucket of the records of archives that people sent.
ARCHIVES_BUCKET = "headrace_archives"
#: Bucket of the pieces of the archives that people sent.
PIECES_BUCKET = "headrace_pieces"

#: Subject of a `WhoRequest` to all processes: every process that has seen a term of the named role answers.
WHO = f"{_V1}.who"
#: Subject of a request to all processes: every service answers with its metrics.
FIGURES = f"{_V1}.figures"
#: Subject on which admission publishes the events of the log to the other services, including commands and environments.
EVENTS = f"{_V1}.events"
#: Subject on which admission publishes the events of the log to people, without anything that only an operation's owner may see.
HAPPENINGS = f"{_V1}.happenings"
#: Request of a reader for all live operations, which admission answers.
OPERATIONS_WHOLE = f"{_V1}.operations.whole"
#: Subject on which the allocator of a tree reports to the allocators of other trees which operations of several trees have jobs that it
#: could start at once.
WANTED = f"{_V1}.wanted"
#: Request of fair_share to admission for the groups of a person.
GROUPS_OF = f"{_V1}.groups_of"
#: Beginning of the subjects of requests to admission's ledger; the verb follows.
LEDGER = f"{_V1}.ledger"
#: Beginning of the subject on which an agent asks admission to enrol its node; the node's name follows.
ENROL = f"{_V1}.enrol"
#: Beginning of the subject on which a host asks admission to join; the public key of the host's token follows.
JOIN = f"{_V1}.join"
#: Beginning of the subject on which an agent asks admission to renew its credential; the node's name follows.
RENEW = f"{_V1}.renew"


def copies_of(bucket: str) -> str:
    """Return the name of the bucket that keeps copies of a bucket's values."""
    return f"{bucket}_copies"


def heartbeat(tree: TreeName | str, node: NodeName | str) -> str:
    """Return the subject of heartbeats, which are requests of a node to the allocator of its tree."""
    return f"{_V1}.{tree}.hb.{node}"


def nudge(node: NodeName | str) -> str:
    """Return the subject on which an allocator asks a node for a heartbeat at once."""
    return f"{_V1}.cmd.{node}.nudge"


def share(tree: TreeName | str) -> str:
    """Return the subject on which fair_share publishes parts of share snapshots."""
    return f"{_V1}.{tree}.share"


def share_whole(tree: TreeName | str) -> str:
    """Return the subject on which a reader asks fair_share for a page of the whole snapshot."""
    return f"{_V1}.{tree}.share.whole"


def usage(tree: TreeName | str) -> str:
    """Return the subject on which the allocator publishes parts of usage snapshots."""
    return f"{_V1}.{tree}.usage"


def usage_whole(tree: TreeName | str) -> str:
    """Return the subject on which a reader asks the allocator for a page of the whole snapshot."""
    return f"{_V1}.{tree}.usage.whole"


def decisions(tree: TreeName | str) -> str:
    """Return the subject on which the allocator publishes what it started and preempted."""
    return f"{_V1}.{tree}.decisions"


def history(tree: TreeName | str) -> str:
    """Return the subject on which fair_share publishes samples of the tree's pools; the stream `history_stream` stores them."""
    return f"{_V1}.{tree}.history"


def history_stream(tree: TreeName | str) -> str:
    """Return the name of the stream that stores the samples of a tree's pools for a while."""
    return f"HEADRACE_HISTORY_{tree}"


def integral_advance(tree: TreeName | str) -> str:
    """Return the subject on which fair_share asks integral to advance the volumes."""
    return f"{_V1}.{tree}.integral.advance"


def integral_volumes(tree: TreeName | str) -> str:
    """Return the subject on which any service asks integral for the current volumes."""
    return f"{_V1}.{tree}.integral.volumes"


def ledger(verb: str) -> str:
    """Return the subject on which an allocator asks admission's ledger. `verb` is `attach`, `draw`, `return`, `report` or `released`."""
    return f"{LEDGER}.{verb}"


def enrol(node: NodeName | str) -> str:
    """Return the subject on which an agent asks admission to enrol its node."""
    return f"{ENROL}.{node}"


def log_reader(node: NodeName | str) -> str:
    """Return the subject on which an agent asks admission whether a person may read the output of an operation's jobs."""
    return f"{_V1}.log_reader.{node}"


def join(token: str) -> str:
    """Return the subject on which a host asks admission to join. `token` is the public key of the host's token."""
    return f"{JOIN}.{token}"


def renew(node: NodeName | str) -> str:
    """Return the subject on which an agent asks admission to renew the node's credential."""
    return f"{RENEW}.{node}"


def fetch_piece(node: NodeName | str) -> str:
    """Return the subject on which an agent asks admission for a piece of the files of an operation."""
    return f"{_V1}.fetch_piece.{node}"


def ask_over(node: NodeName | str) -> str:
    """Return the subject on which an agent asks admission which operations are over, so that it may delete their files."""
    return f"{_V1}.ask_over.{node}"


def give_up_node(tree: TreeName | str) -> str:
    """Return the subject on which admission asks the allocator to give up a node that is to be removed."""
    return f"{_V1}.{tree}.node.give_up"


def operation_view(user_: UserName | str, operation: OperationId | str) -> str:
    """Return the subject on which admission publishes an operation's view to its user after every change, without its command."""
    return f"{_V1}.view.{user_}.{operation}"


def user(user_: UserName | str, verb: str) -> str:
    """Return the subject of a person's request. `verb` is dotted, such as `op.start`, `node.list.<tree>` or `job.logs.<node>`."""
    return f"{_V1}.user.{user_}.{verb}"


def of_tree(verb: str, tree: TreeName | str) -> str:
    """Return a verb for `user` that only the allocator of this tree answers. `verb` is for example `node.list` or `op.where`."""
    return f"{verb}.{tree}"


def inbox(kind: str, name: str) -> str:
    """Return the inbox prefix of a party. `kind` is `user`, `node`, `host` or `service`."""
    return f"_INBOX.{kind}.{name}"


#: The only queue group in which a person may listen for answers. With it the server delivers each answer once, however many
#: subscriptions and connections the person has.
INBOX_QUEUE = "one"
_ASKED = ".asked."


def asks_from(inbox_: str) -> str:
    """Return the reply subject of a person's request, without its last token. If no service listens, the server itself reports this on the
    reply subject.

    The server never sends this report to a queue group, so the answers come on another subject: see `answers_at`.
    """
    return f"{inbox_}{_ASKED[:-1]}"


def answers_at(reply: str) -> str:
    """Return the subject for the answer to a request with this reply subject: the reply subject itself, unless
    `asks_from` made it.
    """
    return reply.replace(_ASKED, ".answered.") if _ASKED in reply and reply.startswith("_INBOX.user.") else reply


def nth(subject: str, place: int) -> str:
    """Return the token at position `place` (0 is `headrace`), empty if there is none."""
    tokens = subject.split(".")
    return tokens[place] if place < len(tokens) else ""
