"""The English text of nodes on which jobs fail, and what is reported when a node becomes suspect."""

from __future__ import annotations

from typing import Final

from headrace.counted import counted
from headrace.durations import format_duration
from headrace_allocator.effects import SuspectNode
from headrace_allocator.explain.reasons import NodeAvoided, NodeHeldBack
from headrace_allocator.facts.facts import Facts
from headrace_allocator.facts.nodes import Node

#: Upper bound of the operations that a text names.
_MOST_NAMED: Final = 3


def words_of_held_back(reason: NodeHeldBack | NodeAvoided) -> str:
    """Return the text of a reason why jobs wait: a node is held back, or the operation avoids a node."""
    more = f", and {counted(reason.more, 'more node')} like it" if reason.more else ""
    trial = _words_of_trial(reason.tried_in_s)
    if isinstance(reason, NodeAvoided):
        return f"its jobs fail on node {reason.node} ({reason.failures} in a row){more}; {trial}"
    is_what = "suspect" if reason.is_suspect else "held back"
    return f"node {reason.node} is {is_what}: {_words_of_run(reason.failures, reason.operations)}{more}; {trial}"


def words_of_failures(facts: Facts, node: Node) -> str:
    """Return a text that says why a node is held back; empty if the node is not held back."""
    failures = node.failures
    if failures is None or not failures.run.is_held:
        return ""
    named = [f"{count} of {name}" for name, count in list(failures.of.items())[:_MOST_NAMED]]
    others = len(failures.of) - len(named)
    which = ", ".join(named) + (f" and others of {counted(others, 'more operation')}" if others else "")
    words = f"{_words_of_run(failures.run.failures, len(failures.of))} ({which})"
    if failures.is_suspect:
        words += ", and jobs of these operations complete on other nodes"
    trial = _words_of_trial(failures.run.until_s - facts.failing.now_s)
    return f"{words}; {trial}; `headrace node undrain {node.record.node}` clears it"


def suspects_reported(facts: Facts) -> list[SuspectNode]:
    """Return the effects that report which nodes became suspect or are suspect no more since the last call."""
    changes, facts.failing.changes = facts.failing.changes, []
    effects: list[SuspectNode] = []
    for change in changes:
        node = facts.nodes.get(change.node)
        words = "" if node is None or not change.is_suspect else words_of_failures(facts, node)
        effects.append(SuspectNode(change.node, change.is_suspect, words, list(change.failures)))
    return effects


def _words_of_run(failures: int, operations: int) -> str:
    return f"the last {counted(failures, 'job')} failed there, of {counted(operations, 'operation')}"


def _words_of_trial(in_s: float) -> str:
    if in_s <= 0:
        return "a single job may be tried there now"
    return f"the next single job is tried there in {format_duration(int(in_s * 1000))}"
