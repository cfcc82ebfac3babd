"""The destinations of a process's spans: a collector, or a file on this machine."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace.obs import tracing
from headrace.obs.logging import logger
from headrace.obs.span_file import SpanFile

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_PROTOCOL: Final = "http/protobuf"


class Traces(msgspec.Struct, frozen=True, omit_defaults=True):
    """The destination of spans, and the fraction of operations that are traced. Without endpoint and folder, tracing is off."""

    #: Address of a collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`, or of its traces if it ends in `/v1/traces`. It
    #: takes precedence over the folder.
    endpoint: str = ""
    #: Folder of the file of spans.
    folder: str = ""
    #: Fraction of operations that are traced, whichever process began the trace.
    sample_ratio: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 1.0


def with_otel_variables(traces: Traces, environment: Mapping[str, str]) -> Traces:
    """Return the settings of traces, completed by the variables of OpenTelemetry's SDK. Settings of Headrace take precedence.

    Unless an endpoint or a folder is given, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` is
    the endpoint. Unless a fraction is given, `OTEL_TRACES_SAMPLER` with `OTEL_TRACES_SAMPLER_ARG` is the fraction of
    traced operations. If `is_switched_off` is true for the variables, the settings that turn tracing off are returned.
    Raises `BadInput`.
    """
    if is_switched_off(environment):
        return Traces()
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    found = next(((name, environment[name]) for name in names if environment.get(name)), None)
    if found is not None and not (traces.endpoint or traces.folder):
        name, endpoint = found
        check_endpoint(endpoint, name)
        _check_protocol(environment)
        traces = msgspec.structs.replace(traces, endpoint=endpoint)
    is_default = traces.sample_ratio == Traces().sample_ratio
    return msgspec.structs.replace(traces, sample_ratio=_sample_ratio(environment)) if is_default else traces


def is_switched_off(environment: Mapping[str, str]) -> bool:
    """Return True if `OTEL_SDK_DISABLED` is `true`, or `OTEL_TRACES_EXPORTER` is `none`."""
    said = {name: environment.get(name, "").strip().lower() for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER")}
    return said["OTEL_SDK_DISABLED"] == "true" or said["OTEL_TRACES_EXPORTER"] == "none"


def _check_protocol(environment: Mapping[str, str]) -> None:
    """Raise `BadInput` if the variables ask for a protocol other than that of the exporter."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if (protocol := environment.get(name, "")) not in ("", _PROTOCOL):
            raise BadInput(name, protocol, f"{_PROTOCOL}, and the port for it in the endpoint, often 4318")


def _sample_ratio(environment: Mapping[str, str]) -> float:
    """Return the fraction of operations that the variables of OpenTelemetry's samplers ask for; 1 without them. Raises `BadInput`."""
    name = environment.get("OTEL_TRACES_SAMPLER", "").removeprefix("parentbased_")
    match name:
        case "" | "always_on":
            return 1.0
        case "always_off":
            return 0.0
        case "traceidratio":
            given = environment.get("OTEL_TRACES_SAMPLER_ARG", "") or "1"
            try:
                return msgspec.convert({"sample_ratio": given}, Traces, strict=False).sample_ratio
            except msgspec.ValidationError:
                raise BadInput("OTEL_TRACES_SAMPLER_ARG", given, "a number from 0 to 1") from None
    expected = "always_on, always_off or traceidratio, or one of these with parentbased_ before it"
    raise BadInput("OTEL_TRACES_SAMPLER", environment["OTEL_TRACES_SAMPLER"], expected)


def begin_tracing(service: str, traces: Traces) -> None:
    """Turn tracing on as configured. If the disk is full, tracing stays off. Raises `BadInput`, `MissingExtra`."""
    if tracing.is_on() or not (traces.endpoint or traces.folder):
        return
    if traces.endpoint:
        check_endpoint(traces.endpoint, "trace_endpoint")
        require("tracing", f"sending spans to {traces.endpoint}")
        from headrace.obs.otlp import OtlpSink

        tracing.begin(service, OtlpSink(traces.endpoint, service), traces.sample_ratio)
        return
    try:
        tracing.begin(service, SpanFile(Path(traces.folder)), traces.sample_ratio)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise BadInput.because(
                "trace_folder",
                f"files cannot be written in {traces.folder} ({error.strerror}); name a folder in which they can",
            ) from None
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
