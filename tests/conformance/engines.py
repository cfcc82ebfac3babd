"""The two engines that cases can be run with: the one that the services run, and its plain twin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal, Protocol

import msgspec
import numpy as np

from headrace.satisfaction import INFINITE_SATISFACTION
from headrace_fair_share.hdrf.arrays import Floats
from headrace_fair_share.hdrf.input_arrays import laid_out
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.hdrf.tree_update import TreeUpdater
from headrace_fair_share.starvation.rules import below_fair_share, local_satisfaction_ratios, satisfaction_ratios
from tests.conformance.trees import ROOT
from tests.conformance.via_service import shared_out
from tests.reference import plots as twin_plots
from tests.reference import update as twin_update
from tests.support import curves
from tests.support.savings import after
from tests.support.update_result import ElementShares, UpdateResult, update

__all__ = ["Engine", "EngineName", "Graph", "KeptFunctions", "Point", "Production", "Twin", "ViaService", "engine_of"]

EngineName = Literal["production", "twin", "service"]
Point = tuple[float, float]


class Graph(Protocol):
    """A function of one component, as an engine's own library made it."""

    def points(self) -> list[Point]: ...

    def limits(self, x: float) -> tuple[float, float]:
        """From the left and from the right."""
        ...


class Engine(Protocol):
    """What the adapters ask of an engine."""

    #: How far figures of single functions may be from the expected ones, in parts of them.
    rounding: float

    def update(self, tree: TreeInput, *, dt_us: int | None = None, fast_fifo: bool = False) -> UpdateResult:
        """One update, `dt_us` after the one before; None: there was none, or its time does not count."""
        ...

    def function_size(self, tree: TreeInput, pool: str, *, fast_fifo: bool) -> int: ...

    def satisfaction(self, tree: TreeInput, result: UpdateResult, name: str) -> float:
        """Of a pool or an operation, infinite where nothing is owed."""
        ...

    def is_below_fair_share(self, element: ElementShares, tolerance: float) -> bool: ...

    def operate(self, op: str, functions: Sequence[Sequence[Point]], arguments: dict[str, float]) -> Graph:
        """What comes of one operation on piecewise-linear functions."""
        ...


class _Judging:
    """Satisfaction and starvation come after the update and have one home, whichever engine made the shares."""

    def satisfaction(self, tree: TreeInput, result: UpdateResult, name: str) -> float:
        elements = {ROOT: result.root, **result.pools, **result.operations}
        parents = [-1, *(pool.parent + 1 for pool in tree.pools), *(each.pool + 1 for each in tree.operations)]
        local = local_satisfaction_ratios(*_columns(*elements.values()))
        ratios = satisfaction_ratios(local, np.array(parents), 1 + len(tree.pools)).tolist()
        ratio: float = dict(zip(elements, ratios, strict=True))[name]
        return math.inf if ratio >= INFINITE_SATISFACTION else ratio

    def is_below_fair_share(self, element: ElementShares, tolerance: float) -> bool:
        return bool(below_fair_share(*_columns(element), tolerance, np.zeros(1, np.bool_))[0])


def _columns(*elements: ElementShares) -> tuple[Floats, Floats, Floats]:
    """Usage, fair share and demand, each as an array of all elements."""
    usage, fair, demand = zip(
        *((each.usage_share, each.fair_share, each.demand_share) for each in elements), strict=True
    )
    return np.array(usage).T, np.array(fair).T, np.array(demand).T


class _TwinGraph:
    def __init__(self, plot: twin_plots.Plot) -> None:
        self._plot = plot

    def points(self) -> list[Point]:
        return [(x, y) for x, (y,) in self._plot.points()]

    def limits(self, x: float) -> tuple[float, float]:
        return self._plot.value(x)[0], self._plot.right_limit(x)[0]


class Twin(_Judging):
    """The plain twin."""

    rounding = 0.0

    def update(self, tree: TreeInput, *, dt_us: int | None = None, fast_fifo: bool = False) -> UpdateResult:
        return twin_update.update(tree, dt_us=dt_us, fast_fifo=fast_fifo)

    def function_size(self, tree: TreeInput, pool: str, *, fast_fifo: bool) -> int:
        return twin_update.function_size(tree, pool, fast_fifo=fast_fifo)

    def operate(self, op: str, functions: Sequence[Sequence[Point]], arguments: dict[str, float]) -> Graph:
        plots = [twin_plots.Plot([x for x, _ in points], [(y,) for _, y in points]) for points in functions]
        operations: dict[str, Callable[[], twin_plots.Plot]] = {
            "identity": lambda: plots[0],
            "sum": lambda: twin_plots.sum_of(plots),
            "min": lambda: _folded(twin_plots.lower_of, plots),
            "compose": lambda: twin_plots.compose(plots[0], plots[1]),
            "transpose": lambda: twin_plots.transpose(plots[0]),
            "scale_argument": lambda: twin_plots.scale_argument(plots[0], arguments["scale"]),
            "shift": lambda: twin_plots.shift(plots[0], arguments["dx"], arguments["dy"]),
        }
        return _TwinGraph(operations[op]())


class KeptFunctions(msgspec.Struct, frozen=True):
    """Points of an element's functions: the suggestion, the fit factor that it allows, and the shares that come of it."""

    suggestions: list[float]
    fits: list[float]
    shares: list[list[float]]


class _ProductionGraph:
    def __init__(self, function: curves.Function) -> None:
        self._function = function

    def points(self) -> list[Point]:
        return self._function.points

    def limits(self, x: float) -> tuple[float, float]:
        return self._function.value(x), self._function.right_limit(x)


class Production(_Judging):
    """The engines of the services: that of integral for the savings, then that of fair share."""

    #: An update adds up in another order than the definitions do.
    rounding = 1e-14

    def update(self, tree: TreeInput, *, dt_us: int | None = None, fast_fifo: bool = False) -> UpdateResult:
        """There is one way for fifo pools here, so that the flag changes nothing."""
        return update(after(tree, dt_us))

    def function_size(self, tree: TreeInput, pool: str, *, fast_fifo: bool) -> int:
        """Points that the engine keeps of the pool's functions."""
        return len(self.functions(tree)[pool].suggestions)

    def functions(self, tree: TreeInput) -> dict[str, KeptFunctions]:
        """What the engine keeps of the functions of all elements; nothing of those that it need not make, such as the root."""
        updater = TreeUpdater(builds_always=True)
        updater.update(tree)
        assert updater.functions is not None
        store = updater.functions.store
        numbers = laid_out(tree.pools, tree.operations)
        names = [(pool.name, number) for pool, number in zip(tree.pools, numbers.of_pool.tolist(), strict=True)]
        names += [(each.name, number) for each, number in zip(tree.operations, numbers.of_operation, strict=True)]
        kept = {}
        for name, number in names:
            points = slice(store.first[number], store.first[number] + store.count[number])
            kept[name] = KeptFunctions(
                store.suggestion[points].tolist(), store.fit[points].tolist(), store.shares[:, points].T.tolist()
            )
        return kept

    def operate(self, op: str, functions: Sequence[Sequence[Point]], arguments: dict[str, float]) -> Graph:
        given = [curves.Function(points) for points in functions]
        operations: dict[str, Callable[[], curves.Function]] = {
            "identity": lambda: given[0],
            "sum": lambda: curves.sum_of(given),
            "min": lambda: curves.least_of(given),
            "compose": lambda: curves.compose(given[0], given[1]),
            "transpose": lambda: curves.transposed(given[0]),
            "scale_argument": lambda: curves.scaled(given[0], arguments["scale"]),
            "shift": lambda: curves.shifted(given[0], arguments["dx"], arguments["dy"]),
        }
        return _ProductionGraph(operations[op]())


class ViaService(Production):
    """The same, told and read by messages of which some are lost and some come twice."""

    def __init__(self) -> None:
        self._random = Random(1)

    def update(self, tree: TreeInput, *, dt_us: int | None = None, fast_fifo: bool = False) -> UpdateResult:
        return shared_out(tree, dt_us, self._random)


def _folded(fold: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = fold(result, value)
    return result


def engine_of(name: EngineName) -> Engine:
    engines: dict[EngineName, type[Engine]] = {"production": Production, "twin": Twin, "service": ViaService}
    return engines[name]()
