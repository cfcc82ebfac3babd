"""A stand-in for a collector and for Jaeger, where their images cannot be had: it takes spans by OTLP over HTTP.

With `--config=FILE` it hands them on to the exporter's address in that file, as the collector does.
Without, it keeps them, and answers `/api/traces/ID` as Jaeger does.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_QUERY_PORT = 16686
_SPANS_PORT = 4318


class _Handler(BaseHTTPRequestHandler):
    #: Where spans go, empty for here.
    onward = ""
    kept = ExportTraceServiceRequest()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.onward:
            headers = {"Content-Type": self.headers["Content-Type"]}
            urllib.request.urlopen(urllib.request.Request(self.onward + self.path, body, headers), timeout=10).close()
        else:
            self.kept.MergeFromString(body)
        self._answer(b"", "application/x-protobuf")

    def do_GET(self) -> None:
        wanted = self.path.rpartition("/")[2]
        spans, processes = [], {}
        for number, resource in enumerate(list(self.kept.resource_spans)):
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            processes[f"p{number}"] = {"serviceName": named["service.name"]}
            spans += [
                {
                    "spanID": span.span_id.hex(),
                    "operationName": span.name,
                    "references": [{"refType": "CHILD_OF", "spanID": span.parent_span_id.hex()}],
                    "processID": f"p{number}",
                }
                for scope in resource.scope_spans
                for span in scope.spans
                if span.trace_id.hex() == wanted
            ]
        self._answer(json.dumps({"data": [{"spans": spans, "processes": processes}]}).encode(), "application/json")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


if __name__ == "__main__":
    # The first process of a container is not ended by it otherwise, and its engine waits for ten seconds.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    for option in sys.argv[1:]:
        (_Handler.onward,) = re.findall(r"endpoint: (http://\S+)", Path(option.removeprefix("--config=")).read_text())
    query = ThreadingHTTPServer(("", _QUERY_PORT), _Handler)
    threading.Thread(target=query.serve_forever, daemon=True).start()
    ThreadingHTTPServer(("", _SPANS_PORT), _Handler).serve_forever()
