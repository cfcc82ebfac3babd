"""The integral guarantee of a pool, and the guarantees of a whole tree, for each resource. Pure."""

from __future__ import annotations

from typing import Final

from rich.table import Table
from rich.text import Text

from headrace.durations import format_duration
from headrace.pools import IntegralType
from headrace.resources import RESOURCE_NAMES, Resources, format_amount
from headrace.wire.pools import PoolView, ResourceDistribution
from headrace_cli.show.amounts import percent
from headrace_cli.show.tables import resource_table

#: Seconds in an hour. Volumes are shown in hours from 10 hours times 1 unit (for memory 1 MiB) on, else in seconds.
_SECONDS_PER_HOUR: Final = 3_600


def integral_tables(pool: PoolView, total: Resources) -> list[Table | Text]:
    """Return tables of an integral pool's flow, burst, savings and capacity, and of the guarantees given out below the root."""
    made: list[Table | Text] = []
    there = [name for name in RESOURCE_NAMES if getattr(total, name)]
    if pool.specified_resource_flow is not None:
        rows = [
            ("flow", pool.specified_resource_flow, False),
            ("burst guarantee", pool.specified_burst_guarantee_resources, False),
            ("saved", pool.accumulated_resource_volume, True),
            ("capacity", pool.integral_pool_capacity, True),
        ]
        if pool.settings.integral_guarantees.guarantee_type is not IntegralType.BURST:
            del rows[1]
        made += [_table("integral", rows, there), Text()]
    promised = pool.resource_distribution_info
    if promised is not None and any(any(amounts.values()) for _, amounts in _parts(promised)[:3]):
        made += [_table("promised", [(label, amounts, False) for label, amounts in _parts(promised)], there), Text()]
    return made


def _parts(promised: ResourceDistribution) -> list[tuple[str, dict[str, float]]]:
    return [
        ("strong guarantees", promised.distributed_strong_guarantee_resources),
        ("flows", promised.distributed_resource_flow),
        ("bursts", promised.distributed_burst_guarantee_resources),
        ("together", promised.distributed_resources),
        ("not promised", promised.undistributed_resources),
        ("bursts beyond flows", promised.undistributed_resource_flow),
        ("flows beyond bursts", promised.undistributed_burst_guarantee_resources),
    ]


def _table(head: str, rows: list[tuple[str, dict[str, float] | None, bool]], there: list[str]) -> Table:
    made = resource_table(head, there)
    for label, amounts, times_time in rows:
        if amounts is not None:
            made.add_row(label, *(_words(name, amounts.get(name, 0.0), times_time=times_time) for name in there))
    return made


def _words(resource: str, amount: float, *, times_time: bool) -> str:
    """Return an amount, or with `times_time` an amount times seconds, in words; cpu is in cores."""
    unit = ""
    if times_time:
        hours = amount >= 10 * _SECONDS_PER_HOUR * (2**20 if resource == "memory" else 1)
        amount, unit = (amount / _SECONDS_PER_HOUR, "·h") if hours else (amount, "·s")
    if resource == "memory":
        sign = "-" if amount < 0 else ""
        return sign + format_amount(resource, round(abs(amount))) + unit
    figure = f"{amount:,.2f}".rstrip("0").rstrip(".")
    return f"{figure}{unit}"


def integral_facts(pool: PoolView) -> list[tuple[str, str]]:
    """Return facts of one number each: ratios, how full the savings are, how long they last, and time that did not count."""
    kind = pool.settings.integral_guarantees.guarantee_type
    if kind is IntegralType.NONE:
        return []
    flow, burst = pool.specified_resource_flow_ratio or 0.0, pool.specified_burst_ratio or 0.0
    rows = [("integral guarantee", kind.value), ("resource flow", f"{percent(flow)} of the cluster")]
    if kind is IntegralType.BURST:
        rows.append(("burst guarantee", f"{percent(burst)} of the cluster"))
    saved, most = pool.accumulated_resource_ratio_volume, pool.integral_pool_capacity_ratio
    if saved is not None:
        full = f", {percent(saved / most)} of {most:,.4g}" if most else ""
        rows.append(("saved", f"{saved:,.4g} cluster-seconds{full}"))
    seconds = pool.estimated_burst_usage_duration_seconds
    if seconds is not None:
        rows.append(("lasts at full burst", format_duration(round(seconds * 1000))))
    if pool.downtime is not None and pool.downtime.gaps:
        times = "once" if pool.downtime.gaps == 1 else f"{pool.downtime.gaps} times"
        rows.append(("neither saved nor spent", f"{times}, {format_duration(pool.downtime.together_ms)} together"))
    return rows
