"""Answers that depend on the user: which parts of an operation a user may see, and which rights a user has.

Command, environment and output of an operation are for its owner, and for users who may manage its pool. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Person, PoolTree, Right
from headrace.pools.rights import access_lists, grant, holders
from headrace.suggestions import near
from headrace.wire import operations as wire
from headrace.wire.codec import runs_within
from headrace.wire.logs import AskLogReader, LogReader
from headrace.wire.operations import OperationView
from headrace.wire.refusals import NotFound, Refusal
from headrace.wire.rights import GetRights, RightGrant, RightLacked, Rights, RightsOnPool
from headrace_admission import queries
from headrace_admission.decisions.rights import nearest_configured, no_reading
from headrace_admission.decisions.start_plan import no_sessions
from headrace_admission.log.byte_budget import PAGE_OF_OPERATIONS_BYTES
from headrace_admission.state.spec_size import without_command
from headrace_admission.state.state import State

#: Upper bound of the holders of one right that an answer names.
_MOST_HOLDERS: Final = 20


def get_operation(state: State, request: wire.GetOperation, user: str) -> OperationView | Refusal:
    """Return one operation, without the parts that this user may not see."""
    answer = queries.get_operation(state, request)
    return _told_to(state, answer, user) if isinstance(answer, OperationView) else answer


def explain_operation(state: State, request: wire.ExplainOperation, user: str) -> wire.OperationExplanation | Refusal:
    """Return the explanation of an operation, without the parts that this user may not see."""
    answer = queries.explain_operation(state, request)
    if not isinstance(answer, wire.OperationExplanation):
        return answer
    return msgspec.structs.replace(answer, view=_told_to(state, answer.view, user))


def recorded_part(answer: Struct, unrecorded: Collection[OperationId]) -> tuple[Struct, bool]:
    """Return the answer, and True if it may be sent now or False if it must wait for the log.

    A list is returned without the operations whose start is not recorded yet, because the start may never be recorded. An answer
    about one operation must wait until its start is recorded. An answer that an operation was not found must wait too.
    """
    if isinstance(answer, wire.OperationList) and unrecorded:
        return replace(
            answer, operations=[each for each in answer.operations if each.operation not in unrecorded]
        ), True
    view = answer.view if isinstance(answer, wire.OperationExplanation) else answer
    is_unrecorded = isinstance(view, OperationView) and view.operation in unrecorded
    return answer, not (is_unrecorded or isinstance(answer, NotFound))


def log_reader(state: State, request: AskLogReader) -> LogReader | Refusal:
    """Answer an agent that asks whether a user may read the output of an operation's jobs, or may have a session with them."""
    operation = state.operations.get(request.operation)
    if operation is None:
        return queries.not_found(state, request.operation)
    refusal: Refusal | None = no_reading(state, operation, request.user)
    if refusal is None and request.session_in:
        refusal = no_sessions(state.configuration.trees, [TreeName(request.session_in)])
    return refusal or LogReader(operation.started_at_ms)


def rights_of(state: State, request: GetRights, user: str) -> Rights | NotFound:
    """Return the rights of the user who asks, on all pools or on one."""
    person, groups = state.configuration.person(user), list(state.configuration.groups.of(user))
    if request.pool:
        on_pool = _rights_on_one(state, request, person)
        return (
            on_pool if isinstance(on_pool, NotFound) else Rights(user, person.administrator, [on_pool], groups=groups)
        )
    rules = state.configuration.trees.values()
    found = [row for each in rules if each.configured is not None for row in _rights_in(each.configured, person)]
    page = next(runs_within(found, PAGE_OF_OPERATIONS_BYTES), [])
    return Rights(user, person.administrator, page, len(found) - len(page), groups)


def _told_to(state: State, view: OperationView, user: str) -> OperationView:
    if no_reading(state, state.operations[view.operation], user) is None:
        return view
    failures = [msgspec.structs.replace(end, stderr_tail="") for end in view.last_failures]
    spec = without_command(view.spec)
    return msgspec.structs.replace(view, spec=spec, last_failures=failures, is_withheld=True)


def _rights_in(tree: PoolTree, person: Person) -> Iterator[RightsOnPool]:
    for pool in (ROOT_POOL, *tree.preorder):
        if pool == ROOT_POOL:
            yield _rights_on(tree, pool, person)
        elif any(getattr(tree.settings(pool).access, right.value) for right in Right):
            row = _rights_on(tree, pool, person)
            if row.rights != _rights_on(tree, tree.pools[pool].parent, person).rights:
                yield row


def _rights_on(tree: PoolTree, pool: PoolName, person: Person) -> RightsOnPool:
    if person.administrator:
        return RightsOnPool(tree.name, pool, [right.value for right in Right])
    path, lists = list(tree.upwards(pool)), list(access_lists(tree, pool))
    found = {right: given for right in Right if (given := grant(lists, person, right)) is not None}
    grants = [RightGrant(right.value, path[by.level], by.right.value, by.entry) for right, by in found.items()]
    return RightsOnPool(tree.name, pool, [right.value for right in found], grants)


def _rights_on_one(state: State, request: GetRights, person: Person) -> RightsOnPool | NotFound:
    """Return the rights on one pool, with the holders of the rights that the person lacks."""
    book = state.books.get(request.tree)
    if book is None or book.rules.configured is None:
        return NotFound("tree", request.tree, near=near(request.tree, state.configuration.trees))
    if request.pool != ROOT_POOL and not book.exists(request.pool):
        return NotFound("pool", request.pool, near=near(request.pool, book.rules.pools))
    tree, configured = book.rules.configured, nearest_configured(book, request.pool)
    on_pool = _rights_on(tree, configured, person)
    lists = list(access_lists(tree, configured))
    lacked = [
        RightLacked(right.value, holders(lists, right)[:_MOST_HOLDERS])
        for right in Right
        if right.value not in on_pool.rights
    ]
    return replace(on_pool, pool=request.pool, lacked=lacked)
