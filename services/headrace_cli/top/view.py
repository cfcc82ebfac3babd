"""The user's view: the chosen section and row, the order, the filter and the opened page. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec


class Section(enum.StrEnum):
    """The sections of a frame, in their order."""

    POOLS = "pools"
    OPERATIONS = "operations"
    NODES = "nodes"
    STARVING = "starving"
    PREEMPTIONS = "preemptions"


class Opened(NamedTuple):
    """A page about one pool, operation or node, or the output of an operation."""

    #: Subject of the page: `pool`, `operation`, `node` or `output`.
    kind: str
    name: str


class Action(NamedTuple):
    """A change for which the user pressed a key, and which a second key must confirm."""

    #: `abort` an operation; `drain` or `undrain` a node.
    verb: str
    name: str


class Entry(NamedTuple):
    """A row that can be chosen, and the page that it opens."""

    key: str
    opens: Opened


Entries = Mapping[Section, Sequence[Entry]]

#: Names of the orders in which the rows of each section can be sorted, the default first.
ORDERS: Final[Mapping[Section, Sequence[str]]] = {
    Section.POOLS: ("tree", "usage", "demand", "shortage", "name"),
    Section.OPERATIONS: ("newest", "usage", "progress", "pool", "user"),
    Section.NODES: ("name", "usage", "jobs", "trouble"),
    Section.STARVING: ("longest", "name"),
    Section.PREEMPTIONS: ("newest", "pool"),
}
#: Actions by key and by the kind of the chosen row or of the opened page.
_ACTIONS: Final = {
    ("x", "operation"): "abort",
    ("x", "output"): "abort",
    ("d", "node"): "drain",
    ("u", "node"): "undrain",
}
#: Pages to open, by key and by the kind of the chosen row or of the opened page.
_PAGES: Final = {("l", "operation"): "output", ("e", "operation"): "operation", ("e", "output"): "operation"}
_SECTIONS: Final = tuple(Section)
_STEPS: Final = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10, "home": -(10**6), "end": 10**6}


class View(msgspec.Struct, frozen=True):
    """The state of the user's view."""

    section: Section = Section.POOLS
    #: Key of the chosen row, by section.
    chosen: dict[Section, str] = {}
    #: Index of the chosen order among the orders of the section, by section.
    orders: dict[Section, int] = {}
    filter: str = ""
    #: True while keys are added to the filter.
    writes_filter: bool = False
    opened: Opened | None = None
    #: First line of the opened page that is shown.
    first_line: int = 0
    shows_help: bool = False
    #: The action that waits for its confirmation.
    asks: Action | None = None
    #: The action that was confirmed and has not begun.
    confirmed: Action | None = None
    #: Result of the last action; shown until the next key.
    note: str = ""
    is_over: bool = False

    def order(self, section: Section) -> str:
        """Return the name of the chosen order of a section's rows."""
        orders = ORDERS[section]
        return orders[self.orders.get(section, 0) % len(orders)]

    def place(self, section: Section, entries: Sequence[Entry]) -> int:
        """Return the position of the chosen row. It is 0 if no row was chosen, or while the chosen row is gone."""
        key = self.chosen.get(section)
        return next((place for place, entry in enumerate(entries) if entry.key == key), 0)

    def has_lost_its_row(self, section: Section, entries: Sequence[Entry]) -> bool:
        """True if a row was chosen and that row is gone."""
        key = self.chosen.get(section)
        return key is not None and all(entry.key != key for entry in entries)


def on_key(view: View, key: str, entries: Entries) -> View:
    """Return the view after the user pressed `key`. `entries` contains the rows of each section, as they are shown."""
    view = _with(view, note="")
    if view.asks is not None:
        return _with(view, asks=None, confirmed=view.asks if key == "y" else None)
    if view.writes_filter:
        return _write_filter(view, key)
    if view.shows_help and key not in _STEPS:
        return _with(view, shows_help=False, first_line=0)
    if view.opened is not None and key in ("escape", "q", "enter", "backspace"):
        return _with(view, opened=None, first_line=0)
    if key in _STEPS:
        return _step(view, _STEPS[key], entries[view.section])
    about = view.opened or _opened_by_row(view, entries)
    if about is not None and (key, about.kind) in _ACTIONS:
        if view.opened is None and view.has_lost_its_row(view.section, entries[view.section]):
            # While the chosen row is gone, the first row is marked in its place. No action is offered for the first row then, because the
            # user did not choose it.
            return _with(view, note="the chosen row is gone: choose a row")
        return _with(view, asks=Action(_ACTIONS[key, about.kind], about.name))
    if about is not None and (key, about.kind) in _PAGES:
        return _with(view, opened=Opened(_PAGES[key, about.kind], about.name), first_line=0)
    match key:
        case "q":
            return _with(view, is_over=True)
        case "?" | "h":
            return _with(view, shows_help=True, first_line=0)
        case _ if view.opened is not None:
            return view
        case "/":
            return _with(view, writes_filter=True)
        case "escape":
            return _with(view, filter="")
        case "s":
            place = (view.orders.get(view.section, 0) + 1) % len(ORDERS[view.section])
            return _with(view, orders={**view.orders, view.section: place})
        case "tab" | "back tab":
            step = 1 if key == "tab" else -1
            return _with(view, section=_SECTIONS[(_SECTIONS.index(view.section) + step) % len(_SECTIONS)])
        case "enter":
            return _with(view, opened=about, first_line=0)
        case "p" if about is not None and about.kind == "pool":
            return _with(view, section=Section.OPERATIONS, filter=about.name)
        # `isdecimal` and not `isdigit`: a superscript two, which some keyboards have, is a digit to Python but no number.
        case _ if key.isdecimal() and 1 <= int(key) <= len(_SECTIONS):
            return _with(view, section=_SECTIONS[int(key) - 1])
        case _:
            return view


def _opened_by_row(view: View, entries: Entries) -> Opened | None:
    """Return the page that the chosen row opens, None in a section without rows."""
    rows = entries.get(view.section, ())
    return rows[view.place(view.section, rows)].opens if rows else None


def _write_filter(view: View, key: str) -> View:
    match key:
        case "enter":
            return _with(view, writes_filter=False)
        case "escape":
            return _with(view, writes_filter=False, filter="")
        case "backspace":
            return _with(view, filter=view.filter[:-1])
        case _ if len(key) == 1:
            return _with(view, filter=view.filter + key)
        case _:
            return view


def _step(view: View, step: int, rows: Sequence[Entry]) -> View:
    if view.opened is not None or view.shows_help:
        return _with(view, first_line=max(0, view.first_line + step))
    if not rows:
        return view
    place = min(len(rows) - 1, max(0, view.place(view.section, rows) + step))
    return _with(view, chosen={**view.chosen, view.section: rows[place].key})


def _with(view: View, **changed: object) -> View:
    return msgspec.structs.replace(view, **changed)
