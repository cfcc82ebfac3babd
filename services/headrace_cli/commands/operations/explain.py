"""The command `headrace op explain`: show why an operation waits, and what would end the waiting."""

from __future__ import annotations

from headrace.client import Client, Refused, Unanswered
from headrace.client.asking import at_once
from headrace.ids import TreeName
from headrace.runtime.clock import SystemClock
from headrace.wire.explanations import WaitingExplained
from headrace.wire.operations import FINAL_STATES, OperationExplanation, OperationView
from headrace.wire.plain_values import plain
from headrace_cli.commands.operations.explain_page import ExplainedInTree, explanation
from headrace_cli.commands.operations.operation_id import whole_id
from headrace_cli.commands.operations.requests import share_of
from headrace_cli.commands.operations.tables import operation_table
from headrace_cli.session import Common, talk
from headrace_cli.show.screen import Screen


def explain(operation: str, /, *, common: Common | None = None) -> int:
    """Explain why jobs of an operation wait: every reason with its figures, and what would end it.

    It shows the operation's usage and fair share, when it and the pools above it starve, how many nodes could run its jobs, which
    operations come first, limits of its pools, and what the last attempts to preempt found. For a pending operation it shows every pool
    from the root down with its limits, and which operations hold the running slots.

    Examples of use:

        headrace op explain 69201a4f-0c1d2e3f4a5b

        headrace op explain 69201a4f-0c1d2e3f4a5b --json | jq '.trees[].waiting.causes'

    Parameters
    ----------
    operation
        The operation's id, or the beginning of the id.
    """

    async def work(client: Client, screen: Screen) -> None:
        told, in_trees = await explained(client, await whole_id(client, operation))
        if screen.json:
            trees = {
                name: {
                    "waiting": plain(each.waiting),
                    "share": plain(each.share),
                    "starvation_outlooks": plain(each.outlooks),
                }
                for name, each in in_trees.items()
            }
            fields = plain(told)
            assert isinstance(fields, dict)
            screen.show({**fields, "trees": trees}, operation_table([], 0))
        else:
            screen.print(*explanation(told, in_trees, SystemClock().wall_ms()))

    return talk(common, work)


async def explained(client: Client, operation: str) -> tuple[OperationExplanation, dict[TreeName, ExplainedInTree]]:
    """Return what admission, fair_share and the allocators report about why an operation waits.

    The second result is by tree, and empty if the operation is over. Raises what `Client.explain` raises.
    """
    told = await client.explain(operation)
    placements = {each.tree: each for each in told.view.placements if told.view.state not in FINAL_STATES}

    async def in_tree(tree: TreeName) -> ExplainedInTree:
        share, frame, outlooks = await share_of(client, told.view, placements[tree])
        waiting = await _waiting(client, told.view, tree)
        return ExplainedInTree(waiting, share, frame, outlooks)

    return told, await at_once(in_tree, list(placements))


async def _waiting(client: Client, view: OperationView, tree: TreeName) -> WaitingExplained | None:
    """Return why the operation's jobs wait in a tree.

    Returns None if the allocator does not answer or does not know the operation yet.
    """
    try:
        return await client.operation(view.operation).waiting(tree)
    except (Unanswered, Refused):
        return None
