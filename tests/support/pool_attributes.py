"""What people may write for attributes of pools and options of trees, as hypothesis draws it."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from headrace.pools import Record, Schema
from headrace.pools.attributes.kinds import Choice, Choices, Duration, Flag, Formula, Kind, Number, Whole, Word, Words
from headrace.pools.attributes.map_kinds import Data, ResourceAmounts, TextMap
from headrace.pools.attributes.pool_attributes import UserNames
from headrace.pools.attributes.tree_attributes import PlacementRules

__all__ = ["changes_of", "values_of"]

WORDS = st.text("abcxyz-_09", min_size=1, max_size=8)


def values_of(kind: Kind) -> st.SearchStrategy[object]:
    """What people may write for a kind, as JSON has it."""
    match kind:
        case Flag():
            return st.sampled_from([True, False, "true", "%false"])
        case Whole():
            return st.integers(kind.least, min(kind.most, kind.least + 1000)).flatmap(
                lambda number: st.sampled_from([number, str(number), float(number)])
            )
        case Number():
            return st.floats(kind.least, kind.most, exclude_min=kind.above)
        case Duration():
            least, most = kind.least_ms, min(kind.most_ms, kind.least_ms + 10**6)
            return st.integers(least, most).flatmap(lambda ms: st.sampled_from([ms, f"{ms}ms"]))
        case Choice():
            return st.sampled_from([str(each) for each in kind.of])
        case Choices():
            return st.permutations([str(each) for each in kind.of.of]).flatmap(
                lambda all_: st.integers(1, len(all_)).map(lambda n: list(all_)[:n])
            )
        case ResourceAmounts():
            return st.dictionaries(
                st.sampled_from(["cpu", "memory", "gpu", "user_slots", "network"]), st.integers(0, 2**40)
            )
        case PlacementRules():
            last = st.sampled_from(["user", "default", "default guests", "reject"])
            first = st.lists(st.sampled_from(["specified", "user existing", "nested_user specified"]), unique=True)
            return st.tuples(first, last).map(lambda rules: [*rules[0], rules[1]])
        case UserNames():
            return st.lists(st.sampled_from(["*", "-", "ann", "a-1", "9"]), max_size=3, unique=True)
        case Words():
            return st.lists(WORDS, max_size=3, unique=True)
        case TextMap():
            return st.dictionaries(WORDS, WORDS, max_size=3)
        case Record():
            return changes_of(kind.schema)
        case Data():
            return st.dictionaries(
                WORDS, st.one_of(st.integers(-(2**63), 2**64 - 1), WORDS, st.lists(WORDS)), max_size=3
            )
        case Formula():
            return st.sampled_from(["ssd", "ssd & !old", "(a | b) & c:d"])
        case Word():
            return WORDS
        case _ if "preset" in kind.words:
            return st.dictionaries(
                WORDS, st.dictionaries(WORDS, st.integers(-(2**63), 2**64 - 1), max_size=2), max_size=2
            )
        case _:
            return st.sampled_from(["cpu", "memory"])


@cache
def changes_of(schema: Schema) -> st.SearchStrategy[dict[str, object]]:
    """Some attributes, each under one of its names."""
    each = [
        st.tuples(st.sampled_from(attribute.names), values_of(attribute.kind))
        for attribute in schema.attributes.values()
    ]
    return st.lists(st.sampled_from(each), unique_by=id, max_size=8).flatmap(lambda some: st.tuples(*some)).map(dict)
