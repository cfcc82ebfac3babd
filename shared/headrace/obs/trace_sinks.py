"""The destinations of a process's spans: a collector, or a file on this machine."""

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
    """The destination of spans, and the fraction of operations that are traced. Without endpoint and folder, tracing is off."""

    #: Address of a collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`. It takes precedence over the folder.
    endpoint: str = ""
    #: Folder of the file of spans.
    folder: str = ""
    #: Fraction of operations that are traced, whichever process began the trace.
    sample_ratio: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 1.0


def begin_tracing(service: str, traces: Traces) -> None:
    """Turn tracing on as configured. If the disk is full, tracing stays off. Raises `BadInput`."""
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
    """Raise `BadInput` if `endpoint` cannot be the address of a collector."""
    try:
        address = urlsplit(endpoint)
        is_one = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise BadInput(place, endpoint, "an address such as http://127.0.0.1:4318")
