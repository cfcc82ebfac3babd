"""Errors as problems (RFC 9457), with the texts of the command line. Pure."""

from __future__ import annotations

import inspect
from typing import Final

import msgspec

from headrace.bus import BusError, PermissionRefused
from headrace.client import ClientError, Refused, Unanswered
from headrace.errors import BadInput, HeadraceError
from headrace.wire import refusals
from headrace.wire.codec import MessageTooLarge

#: Status of each refusal of a service.
_STATUS_OF_REFUSAL: Final[dict[type[msgspec.Struct], int]] = {
    refusals.BadRequest: 400,
    refusals.NotFound: 404,
    refusals.Exists: 409,
    refusals.WrongState: 409,
    refusals.Busy: 503,
    refusals.NotRecorded: 503,
    refusals.NotReady: 503,
    refusals.NotAllowed: 403,
    refusals.AnswerTooLarge: 500,
    refusals.ServiceFault: 502,
    refusals.BrokenRules: 422,
    refusals.OverLimit: 409,
    refusals.StaleTerm: 503,
}
#: Seconds after which a request may be sent again, for the header `Retry-After`.
RETRY_AFTER_S: Final = 1


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request was not carried out."""

    #: Kind of the problem, such as `urn:headrace:not_found`.
    type: str
    title: str
    status: int
    #: What was wrong with which value, what is accepted, and what to do next.
    detail: str
    #: The part of the request that is wrong, such as `time_limit`.
    place: str = ""
    #: What is accepted there.
    expected: str = ""
    #: Known names nearest to an unknown name, best first.
    near: list[str] = []
    #: True if it is not known whether the request had an effect. The same request may be sent again, with the same id.
    maybe_done: bool = False

    @property
    def may_be_repeated(self) -> bool:
        """True if the same request may succeed later."""
        return self.status in (503, 504)


class Failed(HeadraceError):
    """A request that this service itself does not carry out."""

    def __init__(self, why: Problem) -> None:
        super().__init__(why.detail)
        self.problem = why


def problem(status: int, name: str, title: str, detail: str) -> Problem:
    """Return a problem of this service itself."""
    return Problem(f"urn:headrace:{name}", title, status, detail)


def problem_of(error: HeadraceError) -> Problem:
    """Return the problem that answers a request which failed with this error."""
    text = str(error)
    match error:
        case Failed():
            return error.problem
        case Refused(refusal=refusal):
            return _of_refusal(refusal)
        case BadInput():
            base = problem(400, "bad_request", "The request cannot be used as it is", text)
            return msgspec.structs.replace(base, place=error.place, expected=error.expected)
        case MessageTooLarge():
            return problem(413, "too_large", "The request is too large", text)
        case Unanswered(__cause__=PermissionRefused()):
            words = f"the token or the credential does not allow this request, whatever its person may do: {text}"
            return problem(403, "not_allowed", "The credential does not allow this", words)
        case Unanswered():
            base = problem(504, "unanswered", "No usable answer came in time", text)
            return msgspec.structs.replace(base, maybe_done=error.maybe_done)
        case ClientError() | BusError():
            return problem(503, "not_running", "Headrace cannot be reached", text)
        case _:
            return problem(500, "fault", "The request could not be carried out", text)


def _of_refusal(refusal: refusals.Refusal) -> Problem:
    kind = type(refusal)
    title = (inspect.getdoc(kind) or "").partition("\n\n")[0].partition(". ")[0].partition("; ")[0].rstrip(".")
    place, expected, near = "", "", list[str]()
    match refusal:
        case refusals.BadRequest():
            place, expected = refusal.place, "" if refusal.fault else refusal.expected
        case refusals.NotFound():
            near = refusal.near
    return Problem(
        type=f"urn:headrace:{refusal.__struct_config__.tag}",
        title=title,
        status=_STATUS_OF_REFUSAL[kind],
        detail=refusal.text(),
        place=place,
        expected=expected,
        near=near,
        maybe_done=isinstance(refusal, refusals.NotRecorded | refusals.ServiceFault),
    )
