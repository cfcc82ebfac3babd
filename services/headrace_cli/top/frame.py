"""One frame: the cluster in a few lines, then each section with as many rows as fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from headrace.counted import counted
from headrace.durations import format_duration
from headrace_cli.show.tables import bar, packed, table
from headrace_cli.top.cluster_report import Cluster, ClusterReport, cluster_of
from headrace_cli.top.sections import Pen, Rows, first_shown, rows_of, titled, use_of_cluster
from headrace_cli.top.view import Section, View

Lines = list[list[Segment]]
#: Function that lays something out in lines of the given width.
Layout = Callable[[RenderableType, int], Lines]

#: A width larger than any row. A row that does not fit the screen is cut, and never wrapped.
_WHOLE: Final = 10_000
#: Divisor of the number of lines between head and foot. The result is the number of rows that each section keeps at least, also while
#: another section is chosen. A section with fewer rows keeps all its rows.
_KEPT_PART: Final = 8
_FOOT: Final = "? help  Tab section  ↑↓ row  Enter open  l output  x abort  / filter  q quit"
_OF_A_PAGE: Final = "↑↓ scroll  Esc back"
#: Actions in words, by the verb of the action; `{}` stands for the name of the operation or node.
_ASKED: Final = {
    "abort": "abort operation {}",
    "drain": "drain node {}",
    "undrain": "let jobs start on node {} again",
}
HELP: Final = """\
Tab 1 2 3 4 5   go to the next section, or to the section with this number
↑ ↓ PgUp PgDn   choose another row; also j and k, Home and End
Enter           open the row: a pool's details, why an operation waits, a node
l  e            the output of an operation's jobs; why the operation waits
x               abort an operation          p   the operations of a pool
d  u            drain a node; let jobs start on it again
s               change the order of the rows in the section
/               filter by a part of a name, user, title or state; Enter keeps it
Esc             close the page, or remove the filter
q               quit; so does Ctrl-C

The bar of a pool is as wide as the cluster, by the resource in «of»:
  █ #  usage        ░ .  demand beyond the usage
  │ |  fair share   ◇ +  guarantee   ◈ *  both
Red: the pool starves. Figures are usage, fair share, demand and guarantee as
shares of the cluster, then running operations out of all operations.
Preemptions are listed from the start of this command on.
"""


def frame(report: ClusterReport, view: View, pen: Pen, height: int, layout: Layout) -> Lines:
    """Return the lines of a frame that fits the screen."""
    head = [line for text in head_texts(cluster_of(report), pen) for line in layout(text, pen.width)]
    rows = {section: rows_of(report, view, section, pen) for section in Section}
    room = _shared_room({section: len(each.entries) for section, each in rows.items()}, view, height - len(head) - 1)
    lines = head
    for section, each in rows.items():
        begin = first_shown(view.place(section, each.entries), room[section], len(each.entries))
        shown = range(len(each.entries))[begin : begin + room[section]]
        lines += [_cropped(line, pen) for line in layout(_section(report, view, section, each, shown), _WHOLE)]
    return _with_foot(lines, _foot(view), pen, height, layout)


def page(things: Sequence[RenderableType], view: View, pen: Pen, height: int, layout: Layout) -> Lines:
    """Return the lines of the opened page, beginning with the line to which the user scrolled."""
    lines = [line for thing in things for line in layout(thing, pen.width)]
    first = min(view.first_line, max(0, len(lines) - (height - 1)))
    foot = _question(view) or Text(_OF_A_PAGE, style="dim")
    if first + height - 1 < len(lines):
        foot.append(f"  {counted(len(lines) - first - height + 1, 'more line')}", style="yellow")
    return _with_foot(lines[first:], foot, pen, height, layout)


def whole(report: ClusterReport, pen: Pen) -> Iterator[Table | Text]:
    """Yield all sections with all their rows, to be read as text."""
    yield from head_texts(cluster_of(report), pen)
    for section in Section:
        rows = rows_of(report, View(), section, pen)
        yield Text()
        yield _section(report, View(), section, rows, range(len(rows.entries)), chosen=False)


def head_texts(cluster: Cluster, pen: Pen) -> Iterator[Text]:
    """Yield the lines about the cluster as a whole."""
    uses = []
    for each in cluster.in_use:
        drawn = bar(each.used / each.total, 8, ascii_only=pen.ascii_only)
        uses.append(Text.assemble((drawn, "green"), f" {use_of_cluster(each.resource, each.used, each.total)}"))
    if not uses:
        uses = [Text("no nodes are known yet", style="yellow")]
    facts = [f"tree {cluster.tree}"] if cluster.tree not in ("", "default") else []
    facts += [f"nodes {cluster.nodes_online} of {cluster.nodes} online", f"jobs {cluster.running_jobs}"]
    facts += [f"operations {cluster.running_operations} running of {cluster.operations}"]
    if cluster.age_ms is not None:
        old = format_duration(cluster.age_ms // 1000 * 1000) if cluster.age_ms >= 1000 else "<1s"
        facts += [f"shares {cluster.version}, {old} old", f"allocator term {cluster.allocator_term}"]
    yield from packed(uses, pen.width)
    yield from packed(map(Text, facts), pen.width)
    if cluster.recovering:
        yield Text(f"recovering: {cluster.recovering} nodes have reported since the allocator started", style="yellow")
    for words in (*cluster.pauses, *cluster.errors):
        yield Text(words, style="yellow")
    for words in dict.fromkeys(cluster.silent.values()):
        yield Text(words, style="red")


def _shared_room(counts: Mapping[Section, int], view: View, height: int) -> dict[Section, int]:
    """Return the number of rows of each section.

    Every section gets a minimum. Of the remaining rows the chosen section gets as many as it needs, and the other
    sections get the rest.
    """
    room = max(0, height - len(Section))
    kept = min(max(2, room // _KEPT_PART), room // len(Section))
    given = {section: min(count, kept) for section, count in counts.items()}
    for section in (view.section, *Section):
        left = room - sum(given.values())
        given[section] += max(0, min(counts[section] - given[section], left))
    return given


def _section(
    report: ClusterReport, view: View, section: Section, rows: Rows, shown: range, *, chosen: bool = True
) -> Table | Text:
    if not rows.entries:
        there = "nothing matches the filter" if view.filter else "none"
        parts = {Section.OPERATIONS: report.operations, Section.NODES: report.nodes, Section.PREEMPTIONS: []}
        words = "not known yet" if parts.get(section, report.shares) is None else there
        return Text(f"{list(Section).index(section) + 1} {section.value}: {words}", style="bold")
    made = table(titled(report, view, section, len(rows.entries), len(shown)), *rows.heads, right=rows.right)
    made.columns[0].no_wrap = True
    marked = view.place(section, rows.entries) if chosen and section is view.section else -1
    for place in shown:
        made.add_row(*rows.cells(rows.items[place]), style="reverse" if place == marked else "")
    return made


def _question(view: View) -> Text | None:
    """Return the question whether to carry out the action that a key asked for. Without such an action, return the result of the last
    action; None if there is none.
    """
    if view.asks is not None:
        return Text(
            f"{_ASKED[view.asks.verb].format(view.asks.name)}? y does it, any other key does not", style="bold yellow"
        )
    return Text(view.note, style="bold") if view.note else None


def _foot(view: View) -> Text:
    question = _question(view)
    if question is not None:
        return question
    if view.writes_filter:
        return Text(f"filter: {view.filter}_  (Enter keeps it, Esc removes it)", style="bold")
    filtered = Text(f"  filter: {view.filter}", style="yellow") if view.filter else Text()
    return Text.assemble((_FOOT, "dim"), filtered)


def _with_foot(lines: Lines, foot: Text, pen: Pen, height: int, layout: Layout) -> Lines:
    lines = lines[: height - 1]
    empty: list[Segment] = []
    last = [_cropped(line, pen) for line in layout(foot, _WHOLE)]
    return lines + [empty] * (height - 1 - len(lines)) + last


def _cropped(line: list[Segment], pen: Pen) -> list[Segment]:
    """Return the line cut to the screen's width, with a sign at the end if it was cut."""
    line = _without_end(line)
    if Segment.get_line_length(line) <= pen.width:
        return line
    style = line[-1].style if line and line[-1].style == Style(reverse=True) else None
    return [*Segment.adjust_line_length(line, pen.width - 1), Segment("…", style)]


def _without_end(line: list[Segment]) -> list[Segment]:
    """Return the line without the blanks that fill up its last column."""
    made = list(line)
    while made and not made[-1].text.rstrip():
        made.pop()
    return made
