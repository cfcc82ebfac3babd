"""The body of a start request. Its fields are made from `RunOptions`, the options of `headrace run` and `Client.run`. Pure."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from headrace.client.run_options import Identified, RunOptions
from headrace.wire.files import Archive
from headrace.wire.tasks import Task


class TaskRequest(msgspec.Struct, frozen=True):
    """Jobs of one kind."""

    name: str
    #: Program and arguments.
    argv: list[str]
    jobs: int = 1
    #: Cores of each job, such as 1 or "0.5".
    cpu: str | float = 1
    #: Memory of each job: bytes, or a text such as "512M".
    memory: str | int = 0
    gpu: int = 0
    environment: dict[str, str] = {}
    #: True if the jobs start together with the jobs of all other tasks that have `gang`, or not at all.
    gang: bool = False


#: Types that the body leaves out, because each option of such a type also accepts the same values as text. Literals are left out, too,
#: because their options also accept an enumeration.
_NOT_IN_JSON: Final = (Path, Identified, Archive)
#: Generic types of `RunOptions`, each with the type that stands for it in JSON.
_IN_JSON: Final[Mapping[Any, Any]] = {Iterable: list, Sequence: list, Mapping: dict}


def _json_type(hint: Any) -> Any:
    """Return the type of the JSON values for an option. Return None for an option that no JSON value can express."""
    if hint in _NOT_IN_JSON or typing.get_origin(hint) is Literal:
        return None
    if hint is Task:
        return TaskRequest
    kind, of = typing.get_origin(hint), typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):
        parts = [part for each in of if (part := _json_type(each)) is not None]
        return typing.Union[tuple(parts)] if any(part is not type(None) for part in parts) else None  # noqa: UP007
    if kind in _IN_JSON:
        return _IN_JSON[kind][tuple(map(_json_type, of))]
    return hint


def _start_request() -> type[msgspec.Struct]:
    fields: list[Any] = [("argv", list[str], msgspec.field(default_factory=list)), ("operation", str, "")]
    for name, hint in typing.get_type_hints(RunOptions).items():
        kind = _json_type(hint)
        if kind is not None:
            fields.append((name, kind | msgspec.UnsetType, msgspec.UNSET))
    return msgspec.defstruct("StartRequest", fields, frozen=True, module=__name__)


if TYPE_CHECKING:

    class StartRequest(msgspec.Struct, frozen=True):
        """A request to start an operation. Besides these two fields, it has the fields of `RunOptions`."""

        #: Program and arguments; empty with `tasks`.
        argv: list[str]
        #: Id of the operation. A start that is repeated with the same id starts nothing new. Empty: this service makes an id.
        operation: str
else:
    StartRequest = _start_request()


def options_of(request: StartRequest) -> dict[str, Any]:
    """Return the options that the request gives, without `argv` and `operation`."""
    given = {name: getattr(request, name) for name in request.__struct_fields__}
    return {
        name: value for name, value in given.items() if name not in ("argv", "operation") and value is not msgspec.UNSET
    }
