"""Answers that depend on the user: which parts of an operation a user may see, and which rights a user has.

Command, environment and output of an operation are for its owner, and for users who may manage its pool. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from headrace.ids import ROOT_POOL, OperationId, PoolName, TreeName
from headrace.pools import Person, PoolTree, Right
from headrace.pools.rights import access_lists, allowed
from headrace.wire import operations as wire
from headrace.wire.codec import runs_within
from headrace.wire.logs import AskLogReader, LogReader
from headrace.wire.operations import OperationView
from headrace.wire.refusals import NotFound, Refusal
from headrace.wire.rights import GetRights, Rights, RightsOnPool
from headrace_admission import queries
from headrace_admission.decisions.rights import no_reading
from headrace_admission.decisions.start_plan import no_sessions
from headrace_admission.log.byte_budget import PAGE_OF_OPERATIONS_BYTES
from headrace_admission.state.spec_size import without_command
from headrace_admission.state.state import State


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
    """Return the answer and whether it may be sent now. Operations whose start is not recorded are left out: it may never be.

    False: the answer must wait for the log.
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
    refusal = no_reading(state, operation, request.user)
    if refusal is None and request.session_in:
        return no_sessions(state.configuration.trees, [TreeName(request.session_in)]) or LogReader()
    return refusal or LogReader()


def rights_of(state: State, _request: GetRights, user: str) -> Rights:
    """Return the rights of the user who asks."""
    person = state.configuration.everywhere.person(user)
    rules = state.configuration.trees.values()
    found = [row for each in rules if each.configured is not None for row in _rights_in(each.configured, person)]
    page = next(runs_within(found, PAGE_OF_OPERATIONS_BYTES), [])
    return Rights(person.name, person.administrator, page, len(found) - len(page))


def _told_to(state: State, view: OperationView, user: str) -> OperationView:
    if no_reading(state, state.operations[view.operation], user) is None:
        return view
    failures = [msgspec.structs.replace(end, stderr_tail="") for end in view.last_failures]
    spec = without_command(view.spec)
    return msgspec.structs.replace(view, spec=spec, last_failures=failures, is_withheld=True)


def _rights_in(tree: PoolTree, person: Person) -> Iterator[RightsOnPool]:
    for pool in (ROOT_POOL, *tree.preorder):
        if pool == ROOT_POOL:
            yield RightsOnPool(tree.name, pool, _rights_on(tree, pool, person))
        elif any(getattr(tree.settings(pool).access, right.value) for right in Right):
            rights = _rights_on(tree, pool, person)
            if rights != _rights_on(tree, tree.pools[pool].parent, person):
                yield RightsOnPool(tree.name, pool, rights)


def _rights_on(tree: PoolTree, pool: PoolName, person: Person) -> list[str]:
    lists = list(access_lists(tree, pool))
    return [right.value for right in Right if person.administrator or allowed(lists, person, right)]
