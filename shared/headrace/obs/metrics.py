"""Conversion of metrics to the Prometheus format, with names and units by its conventions.

A name begins with `headrace_` and ends with its base unit; a counter's name ends with `_total`. Times are converted to
seconds and cpu to cores, whatever their unit was. A count has no unit in its name. The counter `downtime` in `ms` becomes
`headrace_downtime_seconds_total`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, make_wsgi_app
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from headrace.obs.health import Health
from headrace.wire.figures import Figure, FigureKind, Histogram

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: Returns the metrics, and a function that builds the detailed metrics.
Read = Callable[[], tuple[list[Figure], Callable[[], Iterable[Figure]]]]

#: For each unit, its Prometheus base unit and the factor that converts to it.
_BASE_UNITS: Final = {
    "us": ("seconds", 1e-6),
    "ms": ("seconds", 1e-3),
    "seconds": ("seconds", 1.0),
    "bytes": ("bytes", 1.0),
    "hundredths of a core": ("cores", 0.01),
    "hundredths of a core-second": ("core_seconds", 0.01),
    "gpu-seconds": ("gpu_seconds", 1.0),
    "byte-seconds": ("byte_seconds", 1.0),
}
_COUNTED: Final = ("", 1.0)


def families(figures: Iterable[Figure], labels: Mapping[str, str]) -> Iterator[Metric]:
    """Yield one Prometheus family for each name. `labels` are added to each metric's own labels.

    Metrics of one family must be adjacent, and have the same label names, kind and unit.
    """
    for name, group in itertools.groupby(figures, key=_family_name):
        first, *others = group
        keys = [*labels, *first.labels]
        family = _FAMILIES[first.kind](name, first.says, labels=keys)
        _, factor = _BASE_UNITS.get(first.unit, _COUNTED)
        for figure in (first, *others):
            values = [*labels.values(), *figure.labels.values()]
            if isinstance(figure.value, Histogram):
                buckets, total = _buckets(figure.value, factor), figure.value.sum * factor
                family.add_metric(values, buckets, total)
            else:
                family.add_metric(values, figure.value * factor)
        yield family


def application(read: Read, health: Callable[[], Health], labels: Mapping[str, str]) -> WSGIApplication:
    """Return a WSGI application that answers `/health` with JSON (status 503 while the process is not connected to the bus), and
    any other path with current metrics.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Collector(read, labels))
    metrics: WSGIApplication = make_wsgi_app(registry)

    def answer(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environment["PATH_INFO"] != "/health":
            return metrics(environment, start)
        found = health()
        status = HTTPStatus.OK if found.connected else HTTPStatus.SERVICE_UNAVAILABLE
        start(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
        return [msgspec.json.encode(found)]

    return answer


class _Collector(Collector):
    def __init__(self, read: Read, labels: Mapping[str, str]) -> None:
        self._read = read
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        figures, details = self._read()
        yield from families(figures, self._labels)
        yield from families(details(), self._labels)


def _family_name(figure: Figure) -> str:
    suffix, _ = _BASE_UNITS.get(figure.unit, _COUNTED)
    return "_".join(filter(None, ("headrace", figure.family or figure.name, suffix)))


def _buckets(histogram: Histogram, factor: float) -> list[tuple[str, float]]:
    """Return cumulative counts for each upper bound, the form that Prometheus expects."""
    edges = [f"{bound * factor:g}" for bound in histogram.bounds]
    return list(zip([*edges, "+Inf"], itertools.accumulate(histogram.counts), strict=True))


_FAMILIES: Final = {
    FigureKind.COUNTER: CounterMetricFamily,
    FigureKind.GAUGE: GaugeMetricFamily,
    FigureKind.HISTOGRAM: HistogramMetricFamily,
}
