"""Rights of the caller in words: why the caller has a right on a pool, or who has it instead. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.ids import ROOT_POOL
from headrace.suggestions import some
from headrace.wire.rights import RightGrant, Rights, RightsOnPool

#: Most groups of the caller that are shown.
_MOST_GROUPS: Final = 20


def because(grant: RightGrant) -> str:
    """Return which entry of which access list gives a right."""
    if not grant.entry:
        return "no list names anybody for it"
    where = "the tree" if grant.pool == ROOT_POOL else f"pool {grant.pool}"
    return f"{grant.entry} in access/{grant.access} of {where}"


def rights_on_pool(rights: Rights) -> Iterator[str]:
    """Yield a line for each right on the one pool that the answer is about."""
    groups = some((each.name for each in rights.groups), _MOST_GROUPS) or "no group"
    who = f"{rights.user}, in {groups}"
    [on_pool] = rights.pools
    if rights.administrator:
        yield f"{who}: may do everything, as an administrator"
        return
    yield f"{who}:"
    yield from (f"  may {grant.right}: {because(grant)}" for grant in on_pool.grants)
    yield from (f"  may not {each.right}: held by {', '.join(each.holders) or 'nobody'}" for each in on_pool.lacked)


def reasons(on_pool: RightsOnPool) -> str:
    """Return the reasons for the rights on a pool, each once."""
    return "; ".join(dict.fromkeys(because(grant) for grant in on_pool.grants))
