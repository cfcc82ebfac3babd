"""A snapshot in parts: whatever is lost, repeated or late, a reader holds some version of it, whole, and catches up in the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import OperationId, TreeName
from headrace.resources import Resources
from headrace.wire.codec import LARGEST_MESSAGE_BYTES, decode
from headrace.wire.snapshot_parts import SnapshotPublisher, SnapshotReader
from headrace.wire.snapshots import UsageFrame, UsageItem, UsagePart, WholeRequest
from headrace.wire.version import NEVER, Version
from tests.support.unreliable_parts import UnreliableParts

TREE = TreeName("default")
#: Long names make a snapshot of a few items take several parts.
LONG = "x" * 200_000

Publisher = SnapshotPublisher[UsageItem, UsageFrame]
Reader = SnapshotReader[UsageItem, UsageFrame]


def a_publisher(term: int = 1) -> Publisher:
    return SnapshotPublisher(UsagePart, TREE, term, UsageFrame(), key=lambda item: item.operation.removesuffix(LONG))


def a_reader() -> Reader:
    return SnapshotReader(TREE, UsageFrame(), key=lambda item: item.operation.removesuffix(LONG))


def an_item(name: str, figure: int = 0, long: bool = False) -> UsageItem:
    return UsageItem(OperationId(name + LONG if long else name), usage=Resources(cpu=figure))


def a_frame(number: int) -> UsageFrame:
    return UsageFrame(total=Resources(cpu=number))


changes = st.lists(
    st.tuples(
        st.lists(
            st.builds(an_item, st.sampled_from("abcdef"), st.integers(0, 3), st.booleans()),
            max_size=6,
            unique_by=lambda item: item.operation.removesuffix(LONG),
        ),
        st.lists(st.sampled_from("abcdefz"), max_size=3, unique=True),
    ),
    min_size=1,
    max_size=8,
)


def read_whole(publisher: Publisher, reader: Reader) -> None:
    request = WholeRequest()
    while True:
        part = decode(publisher.page(request), UsagePart)
        reader.on_part(part)
        if part.part + 1 >= part.parts:
            return
        request = WholeRequest(part.version, part.part + 1)


@given(changes, st.data())
def test_always_a_reader_holds_one_version_whole_and_catches_up(
    given_: list[tuple[list[UsageItem], list[str]]], data: st.DataObject
) -> None:
    publisher, reader = a_publisher(), a_reader()
    truth: dict[Version, tuple[dict[str, UsageItem], UsageFrame]] = {}
    link = UnreliableParts[UsagePart](data)
    for number, (items, removed) in enumerate(given_):
        parts = [decode(part, UsagePart) for part in publisher.advance(a_frame(number), items, removed)]
        truth[publisher.version] = (dict(publisher.items), publisher.frame)
        for part in link.arrive(parts):
            reader.on_part(part)
        if data.draw(st.integers(0, 6)) == 6:
            read_whole(publisher, reader)
        assert reader.version == NEVER or (dict(reader.items), reader.frame) == truth[reader.version]
    if reader.version != publisher.version:
        read_whole(publisher, reader)

    assert not reader.needs_whole
    assert reader.version == publisher.version
    assert (dict(reader.items), reader.frame) == truth[publisher.version]


@given(changes)
def test_always_what_is_told_to_have_changed_makes_the_same_of_an_earlier_copy(
    given_: list[tuple[list[UsageItem], list[str]]],
) -> None:
    publisher, reader = a_publisher(), a_reader()
    copy: dict[str, UsageItem] = {}
    read_whole(publisher, reader)
    for number, (items, removed) in enumerate(given_):
        for part in publisher.advance(a_frame(number), items, removed):
            applied = reader.on_part(decode(part, UsagePart))
            if applied is not None:
                assert not applied.changed & applied.removed
                copy.update((name, reader.items[name]) for name in applied.changed)
                for name in applied.removed:
                    del copy[name]
        assert copy == reader.items


@given(changes, st.integers(0, 7))
def test_never_does_a_former_life_of_the_publisher_take_a_reader_back(
    given_: list[tuple[list[UsageItem], list[str]]], at: int
) -> None:
    old, new, reader = a_publisher(1), a_publisher(2), a_reader()
    read_whole(new, reader)
    for number, (items, removed) in enumerate(given_):
        for part in old.advance(a_frame(number), items, removed):
            assert reader.on_part(decode(part, UsagePart)) is None
    read_whole(old, reader)

    assert reader.version == Version(2, 0)
    assert not reader.items


def test_every_part_fits_the_wire_and_names_what_it_builds_on() -> None:
    publisher = a_publisher()
    publisher.advance(a_frame(1), [an_item("a")])
    parts = publisher.advance(a_frame(2), [an_item(f"op-{number}", 1, long=True) for number in range(9)], ["a", "gone"])
    read = [decode(part, UsagePart) for part in parts]

    assert all(len(part) <= LARGEST_MESSAGE_BYTES for part in parts)
    assert len(parts) > 1
    assert {(part.base, part.version, part.parts) for part in read} == {(Version(1, 1), Version(1, 2), len(parts))}
    assert [part.removed for part in read] == [["a"], *[[]] * (len(parts) - 1)]


def test_an_item_that_is_the_same_is_not_sent_again() -> None:
    publisher = a_publisher()
    publisher.advance(a_frame(1), [an_item("a", 1), an_item("b", 1)])
    [part] = publisher.advance(a_frame(1), [an_item("a", 1), an_item("b", 2)])

    assert decode(part, UsagePart).items == [an_item("b", 2)]


def test_pages_that_are_being_read_stay_the_same_while_the_publisher_goes_on() -> None:
    publisher = a_publisher()
    publisher.advance(a_frame(1), [an_item(f"op-{number}", 1, long=True) for number in range(6)])
    first = decode(publisher.page(WholeRequest()), UsagePart)
    publisher.advance(a_frame(2), [an_item("op-0", 2)])
    second = decode(publisher.page(WholeRequest(first.version, 1)), UsagePart)

    assert (second.version, second.part) == (first.version, 1)
    assert decode(publisher.page(WholeRequest()), UsagePart).version == publisher.version


@pytest.mark.parametrize(
    "request_", [WholeRequest(Version(9, 9), 0), WholeRequest(Version(1, 1), 77), WholeRequest(None, 5)]
)
def test_a_page_that_there_is_not_is_answered_with_the_first(request_: WholeRequest) -> None:
    publisher = a_publisher()
    publisher.advance(a_frame(1), [an_item("a")])
    publisher.page(WholeRequest())

    assert decode(publisher.page(request_), UsagePart).part == 0


def test_parts_of_another_tree_are_ignored() -> None:
    publisher: Publisher = SnapshotPublisher(
        UsagePart, TreeName("gpu"), 1, UsageFrame(), key=lambda item: item.operation.removesuffix(LONG)
    )
    reader = a_reader()

    assert reader.on_part(decode(publisher.page(WholeRequest()), UsagePart)) is None
    assert reader.needs_whole


def test_a_version_that_comes_before_the_one_it_builds_on_waits_for_it() -> None:
    publisher, reader = a_publisher(), a_reader()
    read_whole(publisher, reader)
    [first] = publisher.advance(a_frame(1), [an_item("a")])
    whole = decode(publisher.page(WholeRequest()), UsagePart)
    [second] = publisher.advance(a_frame(2), [an_item("b")])

    assert reader.on_part(decode(second, UsagePart)) is None
    assert reader.needs_whole
    applied = reader.on_part(whole)
    assert applied is not None
    assert applied.version == Version(1, 2)
    assert set(reader.items) == {"a", "b"}
    assert reader.on_part(decode(first, UsagePart)) is None


def test_any_number_of_removed_items_travels_in_parts_under_the_cap() -> None:
    """Those of one version once stood in its first part: some 19,000 were more than the wire carries."""
    publisher, reader = a_publisher(), a_reader()
    names = [f"operation-{number:06}-{'x' * 40}" for number in range(30_000)]
    for part in publisher.advance(a_frame(1), [an_item(name) for name in names]):
        reader.on_part(decode(part, UsagePart))
    read_whole(publisher, reader)

    parts = publisher.advance(a_frame(2), [an_item("new")], names)
    applied = [reader.on_part(decode(part, UsagePart)) for part in parts][-1]

    assert all(len(part) <= LARGEST_MESSAGE_BYTES for part in parts)
    assert applied is not None
    assert (applied.changed, applied.removed) == (frozenset({"new"}), frozenset(names))
    assert list(reader.items) == ["new"]
