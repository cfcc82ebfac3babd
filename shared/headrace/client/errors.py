"""Errors between a client and Headrace, except refusals (`headrace.wire.refusals.Refused`)."""

from __future__ import annotations

from headrace.errors import HeadraceError


class ClientError(HeadraceError):
    """The client could not do what was asked."""


class NotRunning(ClientError):
    """No server answers at the address, and nothing was sent."""

    def __init__(self, where: str, why: str, *, is_own: bool = False) -> None:
        """`is_own` is True for a server of `headrace up`, which the person can start. A cluster is started by its administrator."""
        #: State folder or address at which no server answers.
        self.where = where
        self.why = why
        words = (
            f"Headrace is not running ({where}: {why}); start it with `headrace up`, or use a cluster with `headrace login`"
            if is_own
            else f"Headrace does not answer at {where} ({why}); report this to the administrator of that cluster"
        )
        super().__init__(words)


class NotTrusted(ClientError):
    """The server's certificate does not prove that this server is the intended server; nothing was sent."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(f"the server at {url} is not trusted: {why}")


class EndpointUnreadable(NotRunning):
    """The file with the server's address cannot be read; nothing was sent."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(file, why)
        self.args = (f"{file} cannot be read: {why}; it is not known whether Headrace is running",)


class NotYours(ClientError):
    """The state folder belongs to another user, and its files cannot be read."""

    def __init__(self, folder: str, owner: str) -> None:
        super().__init__(
            f"the state folder {folder} is private to {owner}; name your own with --state or $HEADRACE_STATE, "
            "or log in to a shared cluster with `headrace login`"
        )


class NotAdmitted(ClientError):
    """The server does not accept this credential."""

    def __init__(self, where: str, why: str) -> None:
        self.where = where
        self.why = why
        super().__init__(f"the server of {where} refuses the connection: {why}")


class ForkedClient(ClientError):
    """The client was made before this process was forked. Its event loop runs in the parent process only."""

    def __init__(self) -> None:
        super().__init__(
            "this client belongs to the parent of this process; make a `headrace.Client()` or `headrace.Executor()` in this process"
        )


class Unanswered(ClientError):
    """No usable answer came in time."""

    def __init__(
        self, verb: str, waited_s: float, why: str, *, maybe_done: bool, who: str = "", state: str = ""
    ) -> None:
        """`state` says why `who` is silent, if known: a sentence without its full stop."""
        #: Verb of the request, such as `op.start`.
        self.verb = verb
        #: Service that did not answer, if known.
        self.who = who
        self.waited_s = waited_s
        #: The failure after which it is unknown whether the request was done, or else the last failure.
        self.why = why
        #: True if the request may have been received, so that it may still take effect.
        self.maybe_done = maybe_done
        effect = "it may have taken effect" if maybe_done else "nothing was done"
        silent = f"{state or f'{who} does not answer'}: " if who else ""
        super().__init__(f"{silent}{verb} was not answered within {round(waited_s, 1):g} s ({why}); {effect}")


class Unreadable(Unanswered):
    """An answer arrived that cannot be read: it is from another release, or forged by a node."""
