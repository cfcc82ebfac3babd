"""Writes services/headrace_web/api/openapi.json, the description of the HTTP API: `make docs-reference`."""

from __future__ import annotations

import enum
import inspect
import json
import types
import typing
from datetime import date
from typing import Any, Final

import msgspec

from docs.generate.struct_fields import own_fields
from headrace import __version__
from headrace.client.run_options import JobOptions, RunOptions
from headrace.pools import PartialResources
from headrace.resources import RESOURCE_NAMES, Resources, Share
from headrace_web.api.endpoint import PREFIX, Endpoint
from headrace_web.api.problems import Problem
from headrace_web.api.start_request import StartRequest
from headrace_web.api.table import ENDPOINTS

__all__ = ["openapi", "openapi_text"]

#: Statuses of problems that any endpoint can answer with.
_PROBLEMS: Final = {
    400: "The request cannot be used as it is.",
    401: "The request lacks the token.",
    403: "Not allowed.",
    404: "A named thing is not known.",
    409: "The request does not fit the present state.",
    413: "The request is too large.",
    421: "The request was sent to another host name.",
    422: "A rule of the configuration would be broken.",
    500: "A defect, or an answer that is too large.",
    502: "A service failed at the request.",
    503: "A service cannot do it now. The same request may be sent again.",
    504: "A service did not answer in time.",
}
#: One event of a stream.
_EVENT: Final = {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
_NAMED: Final = "#/components/schemas/"


class _Schemas:
    """The schemas of all types that the API names, in the form that `headrace.wire.plain_values.plain` gives values."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        if kind == Share:
            return self._named("Share", lambda: _by_resource("number", required=True))
        origin, parts = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self.of(parts[0]) | _bounds(parts[1:])
        if origin is typing.Literal:
            return {"enum": list(parts)}
        if origin in (types.UnionType, typing.Union):
            return self._union([part for part in parts if part is not msgspec.UnsetType])
        if origin in (list, tuple, set, frozenset):
            return {"type": "array", "items": self.of(parts[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(parts[1])}
        if isinstance(kind, typing.NewType):
            return self.of(kind.__supertype__)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return self._named(kind.__name__, lambda: {"enum": [member.value for member in kind]})
        if kind is Resources:
            return self._named("Resources", lambda: _by_resource("number", required=True))
        if kind is PartialResources:
            return self._named("PartialResources", lambda: _by_resource("number", required=False))
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._named(kind.__name__, lambda: self.struct(kind))
        return dict(_PLAIN[kind])

    def struct(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        """The schema of an object with the fields of a Struct."""
        hints = typing.get_type_hints(kind, include_extras=True)
        says = _comments(kind)
        fields = {}
        for field in msgspec.structs.fields(kind):
            schema = self.of(hints[field.name])
            text = says.get(field.name, "")
            if text and "$ref" in schema:
                schema = {"allOf": [schema]}
            fields[field.name] = schema | ({"description": text} if text else {})
        required = [field.name for field in msgspec.structs.fields(kind) if field.required]
        doc = inspect.getdoc(kind) or ""
        return {
            "type": "object",
            **({"description": doc} if doc else {}),
            "properties": fields,
            **({"required": required} if required else {}),
        }

    def _union(self, parts: list[Any]) -> dict[str, Any]:
        schemas = [self.of(part) for part in parts]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _named(self, name: str, make: Any) -> dict[str, Any]:
        if name not in self.known:
            self.known[name] = {}
            self.known[name] = make()
        return {"$ref": _NAMED + name}


_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    bytes: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    date: {"type": "string", "format": "date"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


def _by_resource(kind: str, *, required: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": kind} for name in RESOURCE_NAMES}}
    return schema | ({"required": list(RESOURCE_NAMES)} if required else {})


def _bounds(metas: tuple[Any, ...]) -> dict[str, Any]:
    names = {
        "ge": "minimum",
        "le": "maximum",
        "gt": "exclusiveMinimum",
        "lt": "exclusiveMaximum",
        "pattern": "pattern",
        "min_length": "minLength",
        "max_length": "maxLength",
    }
    found: dict[str, Any] = {}
    for meta in metas:
        if isinstance(meta, msgspec.Meta):
            found |= {names[name]: value for name in names if (value := getattr(meta, name)) is not None}
    return found


def _comments(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The comments of the fields of a Struct and of its bases, by name."""
    if kind is StartRequest:
        said = {
            "argv": "Program and arguments; empty with `tasks`.",
            "operation": "Id of the operation. A start that is repeated with the same id starts nothing new. "
            "Empty: the service makes an id.",
        }
        return said | {field.name: field.says for each in (JobOptions, RunOptions) for field in own_fields(each)}
    bases = [base for base in reversed(kind.__mro__) if issubclass(base, msgspec.Struct) and base is not msgspec.Struct]
    return {field.name: field.says for base in bases for field in own_fields(base)}


def openapi() -> dict[str, Any]:
    """The description of the API, from the table of its endpoints."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(PREFIX + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    problem = schemas.of(Problem)
    responses = {
        f"Problem{status}": {"description": says, "content": {"application/problem+json": {"schema": problem}}}
        for status, says in _PROBLEMS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": __version__,
            "description": "Everything that a person can do with Headrace. Amounts of cpu are in cores, of memory in bytes; "
            "fields that end in `_ms` are milliseconds, those that end in `_at_ms` milliseconds of Unix time.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(sorted(schemas.known.items())),
            "responses": responses,
        },
    }


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    summary, _, rest = endpoint.description.partition("\n")
    whole = schemas.struct(endpoint.request)
    properties, required = whole["properties"], whole.get("required", [])
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": properties.pop(name)} for name in endpoint.in_path
    ]
    described: dict[str, Any] = {"operationId": endpoint.name, "summary": summary}
    if rest.strip():
        described["description"] = " ".join(rest.split())
    if endpoint.has_body:
        body = {"type": "object", "properties": properties, "additionalProperties": False}
        left = [name for name in required if name in properties]
        body |= {"required": left} if left else {}
        described["requestBody"] = {"required": bool(left), "content": {"application/json": {"schema": body}}}
    else:
        parameters += [_in_query(name, schema, name in required) for name, schema in properties.items()]
    if parameters:
        described["parameters"] = parameters
    content = (
        {"text/event-stream": {"schema": _EVENT}}
        if endpoint.is_stream
        else {"application/json": {"schema": schemas.of(endpoint.answer)}}
    )
    answers: dict[str, Any] = {str(endpoint.status): {"description": "Done.", "content": content}}
    answers |= {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in _PROBLEMS}
    return described | {"responses": answers}


def _in_query(name: str, schema: dict[str, Any], is_required: bool) -> dict[str, Any]:
    parameter = {"name": name, "in": "query", "required": is_required, "schema": schema}
    return parameter | ({"style": "form", "explode": False} if schema.get("type") == "array" else {})


def openapi_text() -> str:
    """The file."""
    return json.dumps(openapi(), indent=1) + "\n"


if __name__ == "__main__":
    print(openapi_text(), end="")
