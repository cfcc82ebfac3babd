"""`python -m tests.support.reduction FILE`: makes a tree on which the algorithm broke as small as it gets.

FILE is the JSON that fair_share left beside a broken tree's plan; `FILE-small.json` and `.yaml` are written beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from headrace_fair_share.hdrf.model import OperationInput, PoolInput, TreeInput
from headrace_fair_share.plan.writing import written
from headrace_fair_share.update.updater import FAULTS
from tests.support.update_result import update

__all__ = ["fault_of", "main", "reduced"]

#: Trees that are tried at most; what is left then is small, if not the smallest.
_MOST_TRIES: Final = 400

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


def reduced(tree: TreeInput, breaks: Callable[[TreeInput], bool], most_tries: int = _MOST_TRIES) -> TreeInput:
    """A smaller tree that breaks as well. If tries sufficed, no single operation, pool or setting of it could be left out.

    `tree` must break. `breaks` is asked at most `most_tries` times and must not raise.
    """
    tries = _Tries(breaks, most_tries)
    before = None
    while tree != before and tries.left:
        before = tree
        tree = _without_operations(tree, tries)
        tree = _without_pools(tree, tries)
        tree = _plainer(tree, tries)
    return tree


class _Tries:
    def __init__(self, breaks: Callable[[TreeInput], bool], left: int) -> None:
        self._breaks = breaks
        self.left = left

    def breaks(self, tree: TreeInput) -> bool:
        """False when no try is left."""
        if not self.left:
            return False
        self.left -= 1
        return self._breaks(tree)


def _shortened(items: Sequence[T], with_items: Callable[[list[T]], TreeInput | None], tries: _Tries) -> list[T]:
    """Items without those that do not matter: leaves out runs of them, first long ones, then shorter ones down to single items."""
    kept = list(items)
    length = max(1, len(kept) // 2)
    while kept:
        at = 0
        while at < len(kept):
            rest = kept[:at] + kept[at + length :]
            smaller = with_items(rest)
            if smaller is not None and tries.breaks(smaller):
                kept = rest
            else:
                at += length
        if length == 1:
            break
        length //= 2
    return kept


def _without_operations(tree: TreeInput, tries: _Tries) -> TreeInput:
    def with_these(operations: list[OperationInput]) -> TreeInput:
        return msgspec.structs.replace(tree, operations=operations)

    return with_these(_shortened(tree.operations, with_these, tries))


def _without_pools(tree: TreeInput, tries: _Tries) -> TreeInput:
    """Pools go with all that is in them."""

    def with_these(places: list[int]) -> TreeInput:
        kept = set(places)
        number: dict[int, int] = {-1: -1}
        pools: list[PoolInput] = []
        for place, pool in enumerate(tree.pools):
            if place in kept and pool.parent in number:
                number[place] = len(pools)
                pools.append(msgspec.structs.replace(pool, parent=number[pool.parent]))
        operations = [
            msgspec.structs.replace(each, pool=number[each.pool]) for each in tree.operations if each.pool in number
        ]
        names = {pool.name for pool in pools}
        integral = {name: state for name, state in tree.integral.items() if name in names}
        return msgspec.structs.replace(tree, pools=pools, operations=operations, integral=integral)

    return with_these(_shortened(range(len(tree.pools)), with_these, tries))


def _plainer(tree: TreeInput, tries: _Tries) -> TreeInput:
    """Settings back to their defaults, one after another."""
    for place, pool in enumerate(tree.pools):
        for plain in _defaults_of(pool, keep=("name", "parent")):
            smaller = msgspec.structs.replace(tree, pools=_with(tree.pools, place, plain(tree.pools[place])))
            tree = smaller if tries.breaks(smaller) else tree
    for place, operation in enumerate(tree.operations):
        for simple in _defaults_of(operation, keep=("name", "pool", "demand", "usage")):
            one = simple(tree.operations[place])
            smaller = msgspec.structs.replace(tree, operations=_with(tree.operations, place, one))
            tree = smaller if tries.breaks(smaller) else tree
    return tree


def _defaults_of(item: S, keep: tuple[str, ...]) -> list[Callable[[S], S]]:
    """For each setting of `item` that is not the default, what takes it back."""

    def taken_back(name: str, default: object) -> Callable[[S], S]:
        def take_back(one: S) -> S:
            return msgspec.structs.replace(one, **{name: default})

        return take_back

    fields = [field for field in msgspec.structs.fields(item) if field.name not in keep]
    return [taken_back(field.name, field.default) for field in fields if getattr(item, field.name) != field.default]


def _with(items: list[T], place: int, item: T) -> list[T]:
    return [*items[:place], item, *items[place + 1 :]]


def fault_of(tree: TreeInput) -> Exception | None:
    """The fault with which the algorithm breaks on a tree by itself. None if it does not."""
    try:
        update(tree)
    except FAULTS as fault:
        return fault
    return None


def main(path: Path) -> int:
    """Writes the smaller tree beside the file. Returns 1 if the tree breaks only after updates before it, which nobody kept."""
    tree = msgspec.json.decode(path.read_bytes(), type=TreeInput)
    fault = fault_of(tree)
    if fault is None:
        print(
            f"{path.name} does not break by itself, only after the updates before it; it stays whole", file=sys.stderr
        )
        return 1
    kind = type(fault)
    small = reduced(tree, lambda smaller: isinstance(fault_of(smaller), kind))
    exact = path.with_name(f"{path.stem}-small.json")
    exact.write_bytes(msgspec.json.encode(small))
    words = " ".join(f"{kind.__name__}: {fault}".split())
    exact.with_suffix(".yaml").write_text(f"# On this tree the fair share breaks:\n#   {words}\n{written(small)}")
    print(f"{exact.with_suffix('.yaml')}: {len(small.operations)} operations, {len(small.pools)} pools")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
