"""Identifiers, each with a type of its own. Only this module defines which names are valid.

Every name that may be part of a bus subject is exactly one subject token: no dot, no wildcard, no space.
"""

from __future__ import annotations

import re
from typing import NewType

from headrace.errors import BadInput

OperationId = NewType("OperationId", str)
AllocationId = NewType("AllocationId", str)
NodeName = NewType("NodeName", str)
PoolName = NewType("PoolName", str)
TreeName = NewType("TreeName", str)
UserName = NewType("UserName", str)
GroupName = NewType("GroupName", str)
#: Identifies one run of an agent process. Sorted as text, the incarnations of one node are in the order of its runs.
Incarnation = NewType("Incarnation", str)

#: The root of every pool tree. It always exists, has no configuration of its own, and no operation runs in it.
ROOT_POOL = PoolName("<Root>")

_INCARNATION = re.compile(r"(?P<number>[0-9]{16})-[0-9a-f]{8}\Z")
_TOKEN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_OPERATION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z")
_GROUP = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\Z")
_POOL = re.compile(r"[^\s/<>\"'\x00-\x1f\x7f]{1,100}\Z")
_TOKEN_RULE = "1 to 63 characters of a-z, 0-9 and '-', without '-' at the start and the end"


def incarnation_number(text: str) -> int | None:
    """Return the number in an agent's incarnation, or None if `text` is no incarnation.

    The number is the Unix time in milliseconds at which the agent started. If an earlier start already had this number or a
    larger number, the agent takes an even larger number.
    """
    match = _INCARNATION.match(text)
    return None if match is None else int(match["number"])


def operation_id(text: str) -> OperationId:
    """Check an operation's id: 1 to 64 of a-z, 0-9 and '-'. Raises `BadInput`."""
    if not _OPERATION.match(text):
        raise BadInput(
            "operation id", text, "1 to 64 characters of a-z, 0-9 and '-', without '-' at the start and the end"
        )
    return OperationId(text)


def node_name(text: str) -> NodeName:
    """Check a node's name, one lower-case token. Raises `BadInput`."""
    if not _TOKEN.match(text):
        raise BadInput("node name", text, _TOKEN_RULE)
    return NodeName(text)


def node_name_from_host(host: str) -> NodeName:
    """Make a node's name from a host name: lower case, with '-' for characters that a token may not have.

    Raises `BadInput` if no usable name is left.
    """
    token = re.sub(r"[^a-z0-9]+", "-", host.lower())[:63].strip("-")
    return node_name(token)


def pool_name(text: str) -> PoolName:
    """Check that a pool may have this name: 1 to 100 characters, no blanks, slashes, quotes or angle brackets. Raises `BadInput`.

    This function checks the form only. The fair share service decides which names a user may give to a pool.
    """
    if not _POOL.match(text) or not text.isprintable():
        raise BadInput(
            "pool name", text, "1 to 100 characters, such as a-z, 0-9, '-' and '_', without blanks and slashes"
        )
    return PoolName(text)


def slashed(text: str) -> str:
    """Convert a path in YARN's form, `root.research.vision`, to Headrace's form, `/research/vision`. Any other text
    is returned unchanged.
    """
    first, period, rest = text.partition(".")
    return f"/{rest.replace('.', '/')}" if period and first.lower() == "root" and "/" not in text else text


def pool_or_path(text: str) -> PoolName:
    """Check the name of a pool, or a path such as `/research/vision`, where `/` is the root. Raises `BadInput`.

    `root.research.vision` is read as the path `/research/vision`. Whether a pool has this path is not checked here: `Pools.at` of
    the client asks for that.
    """
    text = slashed(text)
    if text == ROOT_POOL or (not text.strip("/") and text):
        return ROOT_POOL
    for part in text.removeprefix("/").removesuffix("/").split("/"):
        pool_name(part)
    return PoolName(text)


def tree_name(text: str) -> TreeName:
    """Check a pool tree's name, one lower-case token. Raises `BadInput`."""
    if not _TOKEN.match(text):
        raise BadInput("tree name", text, _TOKEN_RULE)
    return TreeName(text)


def user_name(text: str) -> UserName:
    """Check a user's name, one lower-case token. Raises `BadInput`."""
    if not is_user_name(text):
        raise BadInput("user name", text, _TOKEN_RULE)
    return UserName(text)


def is_user_name(text: str) -> bool:
    """True if a user may have this name."""
    return _TOKEN.match(text) is not None


def group_name(text: str) -> GroupName:
    """Check the name of a group of users: letters, digits, '_', '-' and single dots, as hosts and directories name groups.

    Names that differ in case are different names. Raises `BadInput`.
    """
    if not _GROUP.match(text):
        raise BadInput(
            "group name",
            text,
            "1 to 63 characters of a-z, A-Z, 0-9, '_', '-' and single dots between them, not '-' first",
        )
    return GroupName(text)


def user_name_from_login(login: str) -> UserName:
    """Make a user's name from a login name: lower case, with '-' for characters that a token may not have.

    Raises `BadInput` if no usable name is left.
    """
    return user_name(re.sub(r"[^a-z0-9]+", "-", login.lower()).strip("-")[:63].strip("-"))
