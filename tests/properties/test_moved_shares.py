"""Elements whose fair share, usage or demand alone changed travel by these figures; a reader has the publisher's items all the same."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import PoolName, TreeName
from headrace.resources import Share
from headrace.wire.codec import decode
from headrace.wire.snapshot_parts import SnapshotPublisher, SnapshotReader
from headrace.wire.snapshots import (
    DetailedShare,
    ElementKind,
    MovedShare,
    Part,
    ShareFrame,
    ShareItem,
    SharePart,
    WholeRequest,
)
from headrace.wire.version import NEVER, Version
from tests.support.unreliable_parts import UnreliableParts

TREE = TreeName("default")
#: Names so long that a snapshot of a few items takes several parts.
NAMES = ["a", "b", "c" * 40_000, "d" * 40_000]

shares: st.SearchStrategy[Share] = st.sampled_from([0.0, 0.25, 1.0]).map(lambda share: (share, share, 0.0, 0.0, 0.0))
fair_shares = st.one_of(
    shares.map(lambda share: DetailedShare(weight_proportional=share, total=share)),
    st.builds(DetailedShare, strong_guarantee=shares, weight_proportional=shares, total=shares),
)
items = st.builds(
    ShareItem,
    st.sampled_from([ElementKind.POOL, ElementKind.OPERATION]),
    st.sampled_from(NAMES),
    st.just(PoolName("p")),
    fair_shares,
    usage_share=st.sampled_from([(0.0, 0.0, 0.0, 0.0, 0.0), (0.1, 0.1, 0.0, 0.0, 0.0)]),
    demand_share=shares,
    weight=st.sampled_from([1.0, 1.0, 1.0, 2.0]),
    satisfaction_ratio=st.sampled_from([0.0, 0.5]),
    local_satisfaction_ratio=st.sampled_from([0.0, 0.5]),
)
changes = st.lists(st.lists(items, max_size=6, unique_by=lambda item: item.key), min_size=1, max_size=8)


def a_publisher() -> SnapshotPublisher[ShareItem, ShareFrame]:
    return SnapshotPublisher(SharePart, TREE, 1, ShareFrame(), key=lambda item: item.key, moved=MovedShare.between)


def a_reader() -> SnapshotReader[ShareItem, ShareFrame]:
    return SnapshotReader(TREE, ShareFrame(), key=lambda item: item.key)


def an_item(fair: float, weight: float = 1.0, name: str = "a") -> ShareItem:
    share: Share = (fair, fair, 0.0, 0.0, 0.0)
    detailed = DetailedShare(weight_proportional=share, total=share)
    return ShareItem(ElementKind.OPERATION, name, PoolName("p"), detailed, weight=weight)


def read_whole(
    publisher: SnapshotPublisher[ShareItem, ShareFrame], reader: SnapshotReader[ShareItem, ShareFrame]
) -> None:
    request, more = WholeRequest(), True
    while more:
        part = decode(publisher.page(request), SharePart)
        reader.on_part(part)
        request, more = WholeRequest(part.version, part.part + 1), part.part + 1 < part.parts


@given(changes, st.data())
def test_always_a_reader_has_the_items_of_some_version_whatever_is_lost_or_late(
    given_: list[list[ShareItem]], data: st.DataObject
) -> None:
    publisher, reader = a_publisher(), a_reader()
    truth: dict[Version, dict[str, ShareItem]] = {}
    link = UnreliableParts[SharePart](data)
    read_whole(publisher, reader)
    for changed in given_:
        gone = data.draw(st.lists(st.sampled_from(sorted(publisher.items)), max_size=1)) if publisher.items else []
        parts = [decode(part, SharePart) for part in publisher.advance(ShareFrame(), changed, gone)]
        truth[publisher.version] = dict(publisher.items)
        for part in link.arrive(parts):
            reader.on_part(part)
        if data.draw(st.integers(0, 6)) == 6:
            read_whole(publisher, reader)
        assert reader.version in (NEVER, Version(1, 0)) or reader.items == truth[reader.version]
    if reader.version != publisher.version:
        read_whole(publisher, reader)

    assert not reader.needs_whole
    assert reader.items == publisher.items


def test_a_fair_share_that_changed_alone_is_told_without_the_rest_of_its_item() -> None:
    publisher = a_publisher()
    publisher.advance(ShareFrame(), [an_item(0.5), an_item(0.5, name="b")])
    [part] = publisher.advance(ShareFrame(), [an_item(0.25), an_item(0.25, weight=2.0, name="b")])
    told = decode(part, SharePart)

    assert [moved.key for moved in told.moved] == ["a"]
    assert told.items == [an_item(0.25, weight=2.0, name="b")]
    assert len(part) < len(msgspec.msgpack.encode(told.items[0])) * 2


@given(items, items)
def test_what_moved_makes_the_one_item_of_the_other_and_says_nothing_else(before: ShareItem, after: ShareItem) -> None:
    moved = MovedShare.between(before, after)

    if before.weight != after.weight or before.key != after.key:
        assert moved is None
    if moved is not None:
        assert moved.applied(before) == after
        told = decode(msgspec.msgpack.encode(moved), MovedShare)
        assert told == moved
        assert (moved.usage is None) == (before.usage_share == after.usage_share)
        assert (moved.demand is None) == (before.demand_share == after.demand_share)


def test_usage_and_demand_that_changed_with_the_share_are_told_without_the_rest_of_the_item() -> None:
    publisher = a_publisher()
    publisher.advance(ShareFrame(), [an_item(0.5)])
    used = msgspec.structs.replace(an_item(0.25), usage_share=(0.25,) * 5, demand_share=(0.75,) * 5)
    [part] = publisher.advance(ShareFrame(), [used])
    told = decode(part, SharePart)

    assert not told.items
    assert [(moved.usage, moved.demand) for moved in told.moved] == [((0.25,) * 5, (0.75,) * 5)]
    assert len(msgspec.msgpack.encode(told.moved[0])) < len(msgspec.msgpack.encode(used)) / 2


def test_a_reader_that_knows_nothing_of_moved_shares_takes_no_part_that_has_some() -> None:
    """It is of an earlier version, and would hold what is not so: it asks for the whole."""
    publisher, reader = a_publisher(), a_reader()
    publisher.advance(ShareFrame(), [an_item(0.5)])
    read_whole(publisher, reader)
    [part] = publisher.advance(ShareFrame(), [an_item(0.25)])
    as_it_sees_it: Part[ShareItem, ShareFrame] = msgspec.structs.replace(
        decode(part, SharePart), moved=[], moved_from=None
    )

    assert reader.on_part(as_it_sees_it) is None
    assert reader.needs_whole
    read_whole(publisher, reader)
    assert not reader.needs_whole
    assert reader.items == publisher.items


def test_a_share_that_comes_before_the_version_that_it_builds_on_moves_the_item_of_that() -> None:
    publisher, reader = a_publisher(), a_reader()
    publisher.advance(ShareFrame(), [an_item(0.5)])
    read_whole(publisher, reader)
    [first] = publisher.advance(ShareFrame(), [an_item(0.5, weight=2.0)])
    whole = decode(publisher.page(WholeRequest()), SharePart)
    [second] = publisher.advance(ShareFrame(), [an_item(0.25, weight=2.0)])

    assert decode(second, SharePart).moved
    assert reader.on_part(decode(second, SharePart)) is None
    reader.on_part(whole)
    assert reader.items == {"a": an_item(0.25, weight=2.0)}
    assert reader.on_part(decode(first, SharePart)) is None


def test_of_an_item_that_changes_twice_in_one_version_a_reader_has_the_later() -> None:
    publisher, reader = a_publisher(), a_reader()
    publisher.advance(ShareFrame(), [an_item(0.25)])
    read_whole(publisher, reader)

    for part in publisher.advance(ShareFrame(), [an_item(0.25, weight=2.0), an_item(0.5, weight=2.0)]):
        reader.on_part(decode(part, SharePart))

    assert reader.items == publisher.items == {"a": an_item(0.5, weight=2.0)}


def test_a_share_that_moved_of_nothing_is_asked_for() -> None:
    """No publisher says so; whoever does so in its place brings nobody to a stop."""
    publisher, reader = a_publisher(), a_reader()
    publisher.advance(ShareFrame(), [an_item(0.5)])
    read_whole(publisher, reader)
    reader.items.clear()
    [part] = publisher.advance(ShareFrame(), [an_item(0.25)])
    reader.on_part(decode(part, SharePart))

    assert reader.needs_whole
