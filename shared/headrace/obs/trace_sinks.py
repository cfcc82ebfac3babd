"""The places that spans of a process may go to: a collector, or a file of this machine."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from headrace.errors import BadInput
from headrace.obs import tracing
from headrace.obs.logging import logger
from headrace.obs.span_file import SpanFile

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class Traces(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place that spans go to, and the operations that are traced. Without endpoint and folder tracing is off."""

    #: Of a collector that takes OTLP over HTTP, such as `http://127.0.0.1:4318`. It wins over the folder.
    endpoint: str = ""
    #: Of the file of spans.
    folder: str = ""
    #: The part of operations that are traced, whoever began their trace.
    sample_ratio: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 1.0


def begin_tracing(service: str, traces: Traces) -> None:
    """Turns tracing on as it is wished. A disk without room leaves it off. Raises `BadInput`."""
    if tracing.is_on() or not (traces.endpoint or traces.folder):
        return
    if traces.endpoint:
        check_endpoint(traces.endpoint, "trace_endpoint")
        from headrace.obs.otlp import OtlpSink

        tracing.begin(service, OtlpSink(traces.endpoint, service), traces.sample_ratio)
        return
    try:
        tracing.begin(service, SpanFile(Path(traces.folder)), traces.sample_ratio)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise BadInput("trace_folder", traces.folder, f"a folder for files ({error.strerror})") from None
        logger().warning("nothing is traced", folder=traces.folder, why=error.strerror)


def check_endpoint(endpoint: str, place: str) -> None:
    """Raises `BadInput` for what cannot be the address of a collector."""
    try:
        address = urlsplit(endpoint)
        is_one = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise BadInput(place, endpoint, "an address such as http://127.0.0.1:4318")
