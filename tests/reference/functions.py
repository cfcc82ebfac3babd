"""The three functions of every element (section 7), bottom-up; and the order of fifo pools that want their guarantee used (6)."""

from __future__ import annotations

from itertools import pairwise

from tests.reference.elements import Element, Functions, Operation, Pool, Tree
from tests.reference.plots import (
    Builder,
    Plot,
    component,
    compose,
    compress,
    extend_right,
    is_rising,
    level,
    lower_of,
    narrow,
    scale_argument,
    shift,
    sum_of,
    transpose,
    trim,
    trim_left,
)
from tests.reference.values import (
    COMPONENTS,
    EPS,
    ZEROS,
    Values,
    add,
    ensure,
    every,
    fill,
    fits,
    largest,
    smaller,
    total_of,
)

__all__ = ["make_functions", "pace", "reorder"]


def reorder(tree: Tree) -> None:
    """Section 6: gangs that would not fit into what is left of the pool's guarantee let others go ahead."""
    for pool in tree.pools:
        wanted = tree.options.fifo_reordering and pool.given.fifo_reordering and tree.gangs_step(pool)
        if not (pool.is_fifo and wanted) or every(pool.strong, EPS):
            continue
        taken: list[Operation] = []
        deferred: list[Operation] = []
        used = ZEROS
        stopped = False
        for operation in pool.queue:
            need = smaller(operation.demand_share, operation.limits_share)
            if operation.given.gang and not fits(operation.limits_share, operation.demand_share):
                need = ZEROS
            in_guarantee = fits(pool.strong, add(used, need), EPS)
            waits = operation.given.gang and not any(operation.usage.as_tuple()) and not in_guarantee
            if stopped or waits:
                deferred.append(operation)
                continue
            taken.append(operation)
            used = add(used, need)
            stopped = not in_guarantee and not operation.given.gang
        order = [*taken, *deferred]
        if order != pool.queue:
            pool.queue = order
            for place, operation in enumerate(order):
                operation.effective_fifo_index = place


def pace(pool: Pool) -> list[float]:
    """How much faster than the lightest child each is served."""
    weights = [child.weight for child in pool.children]
    ensure(all(weight > 0 for weight in weights), f"weights of the children of {pool.name} are positive")
    lightest = min((weight for weight in weights if weight > EPS), default=min(weights))
    return [weight / lightest for weight in weights]


def make_functions(tree: Tree, element: Element, *, fast_fifo: bool = False) -> Functions:
    """The element's functions, made with those of everything below unless they are there already."""
    if element.functions is not None:
        return element.functions
    by_child: list[Plot] = []
    match element:
        case Operation():
            ff = _operation_by_fit_factor(tree, element)
        case Pool():
            for child in element.children:
                make_functions(tree, child, fast_fifo=fast_fifo)
            if not element.children:
                ff = level(ZEROS, 0.0, 1.0)
            elif element.is_fifo:
                ff = _fifo_fast(element) if fast_fifo else _fifo(element)
            elif tree.options.improved:
                ff, by_child = _fair_share_improved(element)
            else:
                ff = sum_of(_scaled(element))
        case _:
            raise AssertionError(element)
    _check_by_fit_factor(element, ff)
    mff = _by_suggestion(element, ff)
    fs = compress(compose(ff, mff))
    for what, plot in (("fit factor", mff), ("share", fs)):
        _check_by_suggestion(f"{what} by suggestion of {element.name}", plot)
    element.functions = Functions(ff, mff, fs, by_child)
    return element.functions


def _check_by_fit_factor(element: Element, ff: Plot) -> None:
    ensure(is_rising(ff), f"share by fit factor of {element.name} never falls")
    ensure(ff.start == 0.0, f"fit factors of {element.name} start at zero")
    ensure(ff.xs[-1] != ff.xs[-2], f"share by fit factor of {element.name} does not end in a jump")
    at_left = ff.ys[0]
    ensure(
        all(low < limit + EPS for low, limit in zip(at_left, element.limits_share, strict=True)),
        f"{element.name} starts within its limits",
    )


def _check_by_suggestion(what: str, plot: Plot) -> None:
    ensure(plot.start == 0.0 and plot.end == 1.0, f"{what} is defined on [0, 1]: [{plot.start}, {plot.end}]")
    ensure(plot.xs[-1] != plot.xs[-2], f"{what} does not end in a jump")
    ensure(is_rising(plot), f"{what} never falls")


def _operation_by_fit_factor(tree: Tree, operation: Operation) -> Plot:
    """Section 7.1: usage first, in all resources alike, then the rest in proportion; a gang all at once."""
    used, demand = operation.usage_share, operation.demand_share
    builder = Builder()
    builder.add(0.0, ZEROS)
    if operation.given.gang and operation.parent is not None and tree.gangs_step(operation.parent):
        builder.add(1.0, ZEROS)
        builder.add(1.0, demand)
        builder.add(2.0, demand)
        return builder.plot()
    most = largest(used)
    if most == 0:
        builder.add(1.0, ZEROS)
    previous = 0.0
    for part in sorted(set(used)) if most > 0 else ():
        if part / most > previous:
            previous = part / most
            builder.add(previous, smaller(fill(part), used))
    ensure(most == 0 or previous == 1.0, f"usage of {operation.name} is complete at fit factor 1")
    builder.add(2.0, demand)
    return builder.plot()


def _fifo(pool: Pool) -> Plot:
    """Section 7.2: one after another, as a sum."""
    parts = []
    for place, child in enumerate(pool.queue):
        moved = shift(_fifo_part(child), float(place))
        builder = Builder()
        builder.add(0.0, ZEROS)
        for x, y in moved.points():
            builder.add(x, y)
        parts.append(extend_right(builder.plot(), float(len(pool.queue))))
    return sum_of(parts)


def _fifo_fast(pool: Pool) -> Plot:
    """The same by putting the children's plots one behind another."""
    builder = Builder()
    before = ZEROS
    for place, child in enumerate(pool.queue):
        part = _fifo_part(child)
        for x, y in part.points():
            builder.add(x + place, add(before, y))
        before = add(before, part.ys[-1])
    return builder.plot()


def _fifo_part(child: Operation) -> Plot:
    fs = child.made().fs
    ensure(fs.ys[0] == ZEROS, f"share of {child.name} starts at zero")
    ensure(fs.xs[0] != fs.xs[1] and fs.xs[-1] != fs.xs[-2], f"share of {child.name} jumps at neither end")
    ensure(fs.start == 0.0 and fs.end == 1.0, f"share of {child.name} is defined on [0, 1]")
    return fs


def _scaled(pool: Pool) -> list[Plot]:
    """The children's shares by the pool's fit factor."""
    return [
        extend_right(scale_argument(child.made().fs, speed), 1.0)
        for child, speed in zip(pool.children, pace(pool), strict=True)
    ]


def _fair_share_improved(pool: Pool) -> tuple[Plot, list[Plot]]:
    """Section 7.4: every point of every child is a fit factor of its own, so that no two children jump at once."""
    functions = _scaled(pool)
    pairs = sorted({(x, place) for place, function in enumerate(functions) for x in function.xs})
    builders = [Builder() for _ in functions]
    whole = Builder()
    for k, (x, jumping) in enumerate(pairs):
        lefts: list[Values] = []
        rights: list[Values] = []
        for place, function in enumerate(functions):
            left = function.right_limit(x) if place < jumping else function.value(x)
            right = function.right_limit(x) if place <= jumping else left
            builders[place].add_limits(float(k), left, right)
            lefts.append(left)
            rights.append(right)
        whole.add_limits(float(k), total_of(lefts), total_of(rights))
    return whole.plot(), [builder.plot() for builder in builders]


def _by_suggestion(element: Element, ff: Plot) -> Plot:
    """Section 7.3: the largest fit factor within guarantee plus suggestion, and within the limits."""
    guarantee = add(element.strong, element.proposed)
    result: Plot | None = None
    for r in range(COMPONENTS):
        part = component(ff, r)
        low, high = part.ys[0][0], part.ys[-1][0]
        # A resource that is used up but for rounding may stay level.
        limit = min(max(element.limits_share[r], low), high)
        limit = high if high <= limit * (1 + 1e-13) else limit
        granted = min(max(guarantee[r], low), limit)
        inverse = shift(trim_left(narrow(transpose(part), granted, limit)), -granted)
        bound = trim(extend_right(inverse, 1.0))
        result = bound if result is None else lower_of(result, bound)
    assert result is not None
    ensure(all(a <= b for a, b in pairwise(result.xs)), "points go to the right")
    return result
