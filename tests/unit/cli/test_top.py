"""`headrace top`: the figures of the cluster, the frame at each size, and what keys do to the view."""

from __future__ import annotations

import io
from datetime import UTC

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment

from headrace.ids import AllocationId, NodeName, OperationId, PoolName, TreeName
from headrace.resources import Resources
from headrace.wire.happenings import AllocationPreempted
from headrace.wire.nodes import NodeView
from headrace.wire.operations import OperationView
from headrace.wire.plain_values import plain
from headrace.wire.pools import PoolList, PoolView
from headrace.wire.preemption import PreemptionReason, PreemptionRecord
from headrace.wire.snapshots import (
    DetailedShare,
    ElementKind,
    ShareFrame,
    ShareItem,
    StarvationReason,
    StarvationStatus,
)
from headrace.wire.version import Version
from headrace_cli.top.cluster_report import ClusterReport, InUse, cluster_of, document
from headrace_cli.top.frame import HELP, frame, page, whole
from headrace_cli.top.sections import Pen, entries_of, share_bar
from headrace_cli.top.view import ORDERS, Action, Opened, Section, View, on_key
from tests.unit.cli.test_render import a_pool, a_view, shown

GIB = 1024**3
NOW_MS = 1_000_000
LONG = "a-pool-with-a-name-that-is-longer-than-a-column"


def cpu(share: float) -> tuple[float, ...]:
    return (0.0, share, 0.0, 0.0, 0.0)


def a_share(
    name: str, parent: str, usage: float = 0.0, fair: float = 0.0, demand: float = 0.0, **more: object
) -> ShareItem:
    item = ShareItem(ElementKind.POOL, name, PoolName(parent), DetailedShare(total=cpu(fair)), cpu(usage), cpu(demand))  # type: ignore[arg-type]
    return msgspec.structs.replace(item, **more)


def a_shown_pool(share: ShareItem, **more: object) -> PoolView:
    return msgspec.structs.replace(a_pool(share.name, share.parent), share=share, **more)


def a_report(operations: int = 3, nodes: int = 2) -> ClusterReport:
    starving = {
        "starvation_status": StarvationStatus.STARVING,
        "starvation_reason": StarvationReason.FAIR_SHARE,
        "starving_since_ms": NOW_MS - 40_000,
        "local_satisfaction_ratio": 0.25,
    }
    pools = [
        a_shown_pool(
            a_share("<Root>", "", 0.75, 1.0, 1.5, kind=ElementKind.ROOT),
            usage=Resources(cpu=300, memory=GIB),
            operation_count=3,
            running_operation_count=2,
        ),
        a_shown_pool(a_share("research", "<Root>", 0.5, 0.5, 1.0, strong_guarantee_share=cpu(0.25))),
        a_shown_pool(a_share(LONG, "research", 0.1, 0.2, 0.3)),
        a_shown_pool(a_share("nightly", "<Root>", 0.125, 0.5, 0.6, **starving)),
    ]
    shares = PoolList(
        TreeName("default"),
        pools,
        ShareFrame(Version(7, 3), total=Resources(cpu=400, memory=8 * GIB), at_ms=NOW_MS - 2_500),
        Version(2, 41),
        1,
        operations=[
            a_share("op-1", "research", 0.5, 0.25, 1.0, kind=ElementKind.OPERATION),
            a_share("op-2", "nightly", 0.6, 0.25, 1.0, kind=ElementKind.OPERATION),
        ],
    )
    record = PreemptionRecord(PreemptionReason.PREEMPTION, OperationId("op-2"), decided_at_ms=NOW_MS)
    taken = AllocationPreempted(
        TreeName("default"),
        OperationId("op-1"),
        PoolName("research"),
        NodeName("alpha"),
        AllocationId("a"),
        None,
        record,
    )
    return ClusterReport(
        at_ms=NOW_MS,
        shares=shares,
        operations=[an_operation(f"op-{number}", completed=number) for number in range(operations, 0, -1)],
        nodes=[NodeView(NodeName(f"node-{number}"), "online", [], Resources(cpu=200)) for number in range(nodes)],
        preemptions=[taken],
    )


def an_operation(name: str, completed: int) -> OperationView:
    return msgspec.structs.replace(
        a_view(), operation=OperationId(name), completed_jobs=completed, started_at_ms=NOW_MS
    )


def layout(thing: RenderableType, width: int) -> list[list[Segment]]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    return console.render_lines(thing, console.options.update(width=width), pad=False)


def drawn(report: ClusterReport, view: View = View(), width: int = 80, height: int = 24) -> list[str]:  # noqa: B008
    lines = frame(report, view, Pen(width, zone=UTC), height, layout)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def marked(report: ClusterReport, view: View) -> list[str]:
    """The lines of the chosen row."""
    lines = frame(report, view, Pen(100), 40, layout)
    return [
        "".join(each.text for each in line) for line in lines if any(each.style and each.style.reverse for each in line)
    ]


def press(report: ClusterReport, view: View, key: str) -> View:
    return on_key(view, key, entries_of(report, view, Pen(80)))


def typed(report: ClusterReport, *keys: str) -> View:
    view = View()
    for key in keys:
        view = press(report, view, key)
    return view


# --- the figures ----------------------------------------------------------------------------------------------------------


def test_the_cluster_is_summed_up() -> None:
    cluster = cluster_of(msgspec.structs.replace(a_report(), pauses=["starts are paused"], recovering="1/2"))

    assert cluster.in_use == [InUse("cpu", 300, 400), InUse("memory", GIB, 8 * GIB)]
    assert (cluster.version, cluster.age_ms, cluster.allocator_term) == ("2.41", 2_500, 7)
    assert (cluster.nodes_online, cluster.operations, cluster.running_operations) == (2, 3, 2)
    assert (cluster.pauses, cluster.recovering) == (["starts are paused"], "1/2")


def test_the_document_has_the_cluster_and_every_section() -> None:
    told = plain(document(a_report()))

    assert isinstance(told, dict)
    assert set(told) == {
        "at_ms", "cluster", "pools", "operations", "operation_shares", "nodes", "starving", "preemptions", "progress",
    }  # fmt: skip
    assert told["cluster"]["in_use"][0] == {"resource": "cpu", "used": 3, "total": 4}
    assert [each["name"] for each in told["starving"]] == ["nightly"]


def test_the_last_column_of_pools_is_shown_whatever_the_width() -> None:
    report = a_report()
    assert report.shares is not None
    short = msgspec.structs.replace(report.shares, pools=report.pools[:1])

    for width in (80, 200):
        lines = frame(msgspec.structs.replace(report, shares=short), View(), Pen(width, longest_bar=1000), 24, layout)
        assert any("".join(each.text for each in line).rstrip().endswith("2/3") for line in lines)


def test_an_operation_that_runs_without_a_job_says_so() -> None:
    report = a_report()
    assert report.shares is not None
    idle = [a_share("op-3", "research", kind=ElementKind.OPERATION), *report.shares.operations]
    shares = msgspec.structs.replace(report.shares, operations=idle)
    lines = drawn(msgspec.structs.replace(report, shares=shares), width=120)

    assert any(line.startswith("op-3") and "running, no job" in line for line in lines)
    assert not any(line.startswith("op-1") and "no job" in line for line in lines)


def test_a_bar_shows_usage_demand_fair_share_and_guarantee() -> None:
    pool = a_share("p", "", 0.3, 0.7, 0.8, strong_guarantee_share=cpu(0.2))

    assert share_bar(pool, 10, ascii_only=True).plain == "#+#...|.  "
    assert share_bar(pool, 10, ascii_only=False).plain == "█◇█░░░│░  "
    both = msgspec.structs.replace(pool, strong_guarantee_share=cpu(0.7), demand_share=cpu(3.0))
    assert share_bar(both, 10, ascii_only=True).plain == "###...*..."
    assert share_bar(a_share("idle", ""), 10, ascii_only=True).plain == " " * 10


# --- the frame ------------------------------------------------------------------------------------------------------------


def test_the_frame_tells_of_the_cluster_and_of_each_section() -> None:
    lines = drawn(a_report(), width=100, height=30)

    assert lines[0].endswith("cpu 3 of 4  █        memory 1 GiB of 8 GiB")
    assert lines[1].startswith("nodes 2 of 2 online  jobs 0  operations 2 running of 3  shares 2.41, 2s old")
    assert [line.split(",")[0] for line in lines if line[:1].isdigit()] == [
        "1 pools 4", "2 operations 3", "3 nodes 2", "4 starving 1", "5 preemptions 1",
    ]  # fmt: skip
    assert next(line for line in lines if line.startswith("├─ research")).split()[2:6] == ["50%", "50%", "100%", "25%"]
    assert next(line for line in lines if line.startswith("op-2")).split()[:5] == [
        "op-2",
        "running",
        "2/50",
        "(2",
        "failed)",
    ]
    assert next(line for line in lines if line.startswith("nightly ")).split() == [
        "nightly", "37s", "25%", "fair", "share", "<Root>", "–",
    ]  # fmt: skip
    assert next(line for line in lines if "for op-2" in line).split() == [
        "op-1", "00:16:40", "research", "for", "op-2,", "which", "starves", "alpha",
    ]  # fmt: skip
    assert lines[-1].startswith("? help")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [5, 10, 24, 50])
@pytest.mark.parametrize("section", Section)
def test_a_frame_is_as_large_as_the_screen_and_no_larger(width: int, height: int, section: Section) -> None:
    lines = drawn(a_report(40, 40), View(section=section), width, height)

    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


def test_what_is_cut_says_so() -> None:
    lines = drawn(a_report(), width=60)

    assert not any(LONG in line for line in lines)
    assert any(line.startswith("│  └─ a-pool-wi…") for line in lines)
    assert any(line.endswith("…") for line in lines)


def test_the_chosen_section_has_what_the_others_leave() -> None:
    report = a_report(40, 40)
    of_operations, of_nodes = (drawn(report, View(section=section)) for section in (Section.OPERATIONS, Section.NODES))

    assert (
        sum(line.startswith("op-") for line in of_operations)
        > 8
        > 2
        <= sum(line.startswith("op-") for line in of_nodes)
    )
    assert (
        sum(line.startswith("node-") for line in of_nodes)
        > 8
        > 2
        <= sum(line.startswith("node-") for line in of_operations)
    )


@pytest.mark.parametrize("height", [10, 12, 14, 18, 24])
def test_every_section_has_its_title_on_a_low_screen(height: int) -> None:
    lines = drawn(a_report(200, 40), View(section=Section.NODES), 80, height)

    titles = [line.split(",")[0] for line in lines if line[:1].isdigit()]
    assert titles == ["1 pools 4", "2 operations 200+", "3 nodes 40", "4 starving 1", "5 preemptions 1"]
    assert any(line.startswith("node-") for line in lines)


def test_what_is_not_told_yet_is_no_empty_list() -> None:
    lines = drawn(
        msgspec.structs.replace(
            a_report(), operations=None, nodes=[], silent={"operations": "admission does not answer"}
        )
    )

    assert "2 operations: not known yet" in lines
    assert "3 nodes: none" in lines
    assert "admission does not answer" in lines


def test_a_text_for_a_file_has_all_of_it_and_no_word_is_cut() -> None:
    lines = [line for thing in whole(a_report(40, 40), Pen(160)) for line in shown(thing, 160)]

    assert any(LONG in line for line in lines)
    assert sum(line.startswith("op-") for line in lines) == 40 + 1  # and the one that lost a place
    assert sum(line.startswith("node-") for line in lines) == 40


def test_a_page_is_scrolled_to_its_end_and_no_further() -> None:
    def shown_of(first_line: int) -> list[str]:
        lines = page([HELP], View(first_line=first_line), Pen(80, ascii_only=True), 10, layout)
        return ["".join(segment.text for segment in line).rstrip() for line in lines]

    assert shown_of(0)[0].startswith("Tab")
    assert "more lines" in shown_of(0)[-1]
    assert shown_of(3)[0].startswith("l  ")
    assert shown_of(1_000) == shown_of(2_000)
    assert "more lines" not in shown_of(1_000)[-1]


# --- keys -----------------------------------------------------------------------------------------------------------------


def test_the_chosen_row_is_marked_and_stays_chosen_while_others_come_and_go() -> None:
    report = a_report()
    view = typed(report, "2", "down")

    assert [line.split()[0] for line in marked(report, view)] == ["op-2"]
    assert [line.split()[0] for line in marked(a_report(operations=30), view)] == ["op-2"]
    gone = msgspec.structs.replace(report, operations=[an_operation("op-9", 0)])
    assert [line.split()[0] for line in marked(gone, view)] == ["op-9"]


@pytest.mark.parametrize("section", Section)
def test_the_chosen_row_is_on_the_screen(section: Section) -> None:
    report = a_report(40, 40)
    view = on_key(View(section=section), "end", entries_of(report, View(), Pen(80)))

    lines = frame(report, view, Pen(80), 24, layout)
    assert sum(any(each.style and each.style.reverse for each in line) for line in lines) == 1


def test_enter_opens_what_the_row_is_about_and_escape_closes_it() -> None:
    report = a_report()

    assert typed(report, "down", "enter").opened == Opened("pool", "research")
    assert typed(report, "2", "end", "enter").opened == Opened("operation", "op-1")
    assert typed(report, "3", "j", "k", "j", "enter").opened == Opened("node", "node-1")
    assert typed(report, "4", "enter").opened == Opened("pool", "nightly")
    assert typed(report, "5", "enter").opened == Opened("operation", "op-1")
    assert typed(report, "down", "enter", "down", "down").first_line == 2
    assert typed(report, "down", "enter", "down", "escape") == typed(report, "down")
    assert typed(msgspec.structs.replace(report, preemptions=[]), "5", "enter").opened is None


@pytest.mark.parametrize("key", ["0", "9", "²", "x"])
def test_a_key_without_a_meaning_changes_nothing(key: str) -> None:
    assert typed(a_report(), key) == View()


def test_a_filter_is_written_kept_and_taken_away() -> None:
    report = a_report()
    view = typed(report, "/", *"NIGHT", "x", "backspace")

    assert not [line for line in drawn(report, view) if "research" in line.split(" ")]
    assert "filter: NIGHT_" in drawn(report, view)[-1]
    kept = on_key(view, "enter", {})
    assert (kept.filter, kept.writes_filter) == ("NIGHT", False)
    assert [entry.key for entry in entries_of(report, kept, Pen(80))[Section.POOLS]] == ["nightly"]
    assert on_key(kept, "escape", {}).filter == ""
    assert typed(report, "/", "q", "s", "escape") == View()


@pytest.mark.parametrize(
    ("section", "order", "first"),
    [
        (Section.POOLS, "name", "<Root>"),
        (Section.POOLS, "shortage", "nightly"),
        (Section.OPERATIONS, "newest", "op-3"),
        (Section.OPERATIONS, "usage", "op-2"),
        (Section.OPERATIONS, "progress", "op-3"),
        (Section.NODES, "name", "node-0"),
    ],
)
def test_a_section_has_the_order_that_was_chosen(section: Section, order: str, first: str) -> None:
    report = a_report()
    steps = ORDERS[section].index(order)
    view = typed(report, str(list(Section).index(section) + 1), *["s"] * steps)

    assert view.order(section) == order
    assert entries_of(report, view, Pen(80))[section][0].key == first
    assert typed(report, *["s"] * len(ORDERS[Section.POOLS])).order(Section.POOLS) == "tree"


@pytest.mark.parametrize(
    ("section", "key", "action"),
    [
        (Section.OPERATIONS, "x", Action("abort", "op-3")),
        (Section.NODES, "d", Action("drain", "node-0")),
        (Section.NODES, "u", Action("undrain", "node-0")),
    ],
)
def test_what_a_key_asks_for_is_done_only_after_y(section: Section, key: str, action: Action) -> None:
    report = a_report()
    asked = press(report, View(section=section), key)
    assert (asked.asks, asked.confirmed) == (action, None)
    assert action.name in drawn(report, asked)[-1]
    assert drawn(report, asked)[-1].endswith("? y does it, any other key does not")
    assert press(report, asked, "y").confirmed == action
    for other in ("n", "enter", "q", key):
        assert press(report, asked, other) == View(section=section)


@pytest.mark.parametrize(("section", "key"), [(Section.OPERATIONS, "x"), (Section.NODES, "d")])
def test_no_row_is_acted_on_in_place_of_a_chosen_row_that_is_gone(section: Section, key: str) -> None:
    report = a_report()
    asked = press(report, View(section=section, chosen={section: "gone"}), key)

    assert (asked.asks, asked.note) == (None, "the chosen row is gone: choose a row")
    chosen = press(report, asked, "down")
    assert press(report, chosen, key).asks is not None


def test_keys_of_other_rows_do_nothing() -> None:
    report = a_report()
    for section, keys in ((Section.POOLS, "xdule"), (Section.NODES, "xlep"), (Section.OPERATIONS, "dup")):
        for key in keys:
            assert press(report, View(section=section), key) == View(section=section)
    for key in "xduelp":
        assert press(ClusterReport(at_ms=NOW_MS), View(), key) == View()


def test_output_and_explanation_are_pages_of_an_operation() -> None:
    report = a_report()
    output = press(report, View(section=Section.OPERATIONS), "l")
    assert output.opened == Opened("output", "op-3")
    assert press(report, output, "e").opened == Opened("operation", "op-3")
    assert press(report, output, "x").asks == Action("abort", "op-3")
    assert press(report, output, "escape").opened is None


def test_p_goes_to_the_operations_of_a_pool() -> None:
    view = press(a_report(), View(chosen={Section.POOLS: "nightly"}), "p")
    assert (view.section, view.filter) == (Section.OPERATIONS, "nightly")


def test_what_was_done_is_said_until_the_next_key() -> None:
    report, view = a_report(), View(note="operation op-3: aborting")
    assert drawn(report, view)[-1] == "operation op-3: aborting"
    assert press(report, view, "down").note == ""


def test_the_bar_of_the_chosen_row_is_not_reversed() -> None:
    lines = frame(a_report(), View(chosen={Section.POOLS: "nightly"}), Pen(80), 40, layout)
    (row,) = [line for line in lines if any("nightly" in segment.text for segment in line)][:1]
    reversed_ = {segment.text.strip() for segment in row if segment.style is not None and segment.style.reverse}
    bars = [segment for segment in row if "█" in segment.text]
    assert any("nightly" in text for text in reversed_)
    assert bars
    assert not any(segment.style is not None and segment.style.reverse for segment in bars)


def test_a_starving_pool_is_red() -> None:
    lines = frame(a_report(), View(section=Section.NODES), Pen(80), 40, layout)
    styles = [(segment.text.strip(), str(segment.style)) for line in lines for segment in line]
    assert next(style for text, style in styles if text == "nightly") == "bold red"
    assert next(style for text, style in styles if text == "research") == "bold"


def test_a_section_says_how_many_rows_are_not_shown() -> None:
    lines = drawn(a_report(operations=40), View(), height=20)
    (title,) = [line for line in lines if line.startswith("2 operations 40, newest … ")]
    shown = sum(line.startswith("op-") and "running" in line for line in lines)
    assert int(title.split("… ")[1].split()[0]) == 40 - shown
    assert not [line for line in drawn(a_report(operations=2), View(), height=40) if "…" in line and "more" in line]


def test_bars_take_the_width_of_the_screen() -> None:
    wide = frame(a_report(), View(), Pen(200, longest_bar=200), 40, layout)
    (row,) = [
        text for line in wide if "research" in (text := "".join(segment.text for segment in line)) and "│" in text
    ][:1]
    assert row.index("│") > 90


def test_tab_goes_round_and_q_and_help_do_what_they_say() -> None:
    report = a_report()

    assert typed(report, "tab", "tab").section is Section.NODES
    assert typed(report, "back tab").section is Section.PREEMPTIONS
    assert typed(report, "?").shows_help
    assert typed(report, "?", "q") == View()
    assert typed(report, "enter", "q") == View()
    assert typed(report, "q").is_over
