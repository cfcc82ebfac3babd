"""Time limits of operations and jobs in words, with the remaining time. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.durations import exact_duration, format_duration
from headrace.wire.nodes import JobPlace, OperationPlaces
from headrace.wire.operation_spec import OperationSpec
from headrace.wire.operations import FINAL_STATES, OperationState, OperationView


def time_limit_rows(view: OperationView, places: OperationPlaces | None, now_ms: int) -> Iterator[tuple[str, str]]:
    """Yield a row for each time limit that an operation has: the limit of each run of a job, and the limit of the whole operation."""
    if view.spec.time_limit_ms is not None:
        words = f"{exact_duration(view.spec.time_limit_ms)} for each run of a job"
        # If `places` names only some of the running jobs, because there are too many, the job that reaches the limit first is not known.
        if places is not None and places.running and places.running_jobs == len(places.running):
            longest = max(places.running, key=lambda place: place.ran_ms)
            words += f"; job {longest.index} reaches it first, {job_left_words(view.spec, longest)}"
        yield "time limit", words
    if view.spec.operation_time_limit_ms is not None:
        words = (
            f"{exact_duration(view.spec.operation_time_limit_ms)} for the whole operation, from its first running slot"
        )
        if view.state not in FINAL_STATES and (left := operation_left_words(view, now_ms)):
            words += f"; {left}"
        yield "" if view.spec.time_limit_ms is not None else "time limit", words


def operation_left_words(view: OperationView, now_ms: int) -> str:
    """Return the remaining time of the whole operation, or an empty string if it has no time limit or does not run."""
    is_counting = view.ends_by_ms and view.state is OperationState.RUNNING
    return f"{format_duration(max(0, view.ends_by_ms - now_ms))} left" if is_counting else ""


def job_left_words(spec: OperationSpec, place: JobPlace) -> str:
    """Return the remaining time of a running job, or an empty string if it has no time limit."""
    return "" if spec.time_limit_ms is None else f"{format_duration(max(0, spec.time_limit_ms - place.ran_ms))} left"
