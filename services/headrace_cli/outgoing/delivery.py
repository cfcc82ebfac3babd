"""Deliveries to an HTTP endpoint or a mail server: one attempt in a thread of its own, and retries with growing pauses."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from headrace.client.asking import Pauses
from headrace.errors import BadInput, HeadraceError, shortened
from headrace.runtime.clock import SystemClock
from headrace_cli.outgoing.exchange import Exchange

if TYPE_CHECKING:
    import requests

#: Seconds to connect, and seconds of silence after which an attempt is given up.
TIMEOUT_S: Final = 20.0
#: Seconds after which an attempt is given up, however slowly the other side answers.
LONGEST_ATTEMPT_S: Final = 120.0
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 300.0
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Undelivered(HeadraceError):
    """An attempt to deliver failed. The message says why.

    Unless `is_final` is true, another attempt may be made, at the earliest after `after_s` seconds.
    """

    def __init__(self, why: str, *, after_s: float = 0.0, is_final: bool = False) -> None:
        self.after_s = after_s
        #: True if another attempt cannot succeed either.
        self.is_final = is_final
        super().__init__(shortened(why))


def has_variable(text: str) -> bool:
    """True if a text refers to an environment variable, as `${NAME}`."""
    return _VARIABLE.search(text) is not None


def with_variables(text: str, place: str) -> str:
    """Return a text with the values of environment variables in place of `${NAME}`. Raises `BadInput`."""

    def value(found: re.Match[str]) -> str:
        if (known := os.environ.get(found[1])) is None:
            raise BadInput.because(place, f"the environment variable {found[1]} is not set")
        return known

    return _VARIABLE.sub(value, text)


def is_url(text: str) -> bool:
    """True if a text begins as the address of an HTTP endpoint does."""
    return text.startswith(("http://", "https://"))


def post(url: str, data: bytes, headers: Mapping[str, str]) -> None:
    """Send one request, and return if the endpoint accepts it (status 2xx). Redirects are not followed. Raises `Undelivered`."""
    import requests  # imported where it is needed: it takes longer than the rest of the command

    try:
        with (
            Exchange(LONGEST_ATTEMPT_S) as exchange,
            _session(exchange) as session,
            session.post(
                url,
                data=data,
                headers=dict(headers),
                # Without an `auth`, requests would replace the header `Authorization` if ~/.netrc has a line for the host.
                auth=lambda request: request,
                timeout=TIMEOUT_S,
                allow_redirects=False,
                stream=True,
            ) as answer,
        ):
            if 200 <= answer.status_code < 300:
                return
            after_s = 0.0
            with contextlib.suppress(ValueError):
                after_s = float(answer.headers.get("Retry-After", ""))
            raise Undelivered(f"it answers {answer.status_code} {answer.reason}", after_s=after_s)
    except (requests.RequestException, TimeoutError) as error:
        # Only the type is shown: the text of the error can contain the address, which may contain a secret.
        raise Undelivered(f"it does not answer ({type(error).__name__})") from None
    except UnicodeError:
        raise Undelivered("its address or a header cannot be sent") from None


def _session(exchange: Exchange) -> requests.Session:
    """Return a session whose connections end with the exchange."""
    import requests
    from requests.adapters import HTTPAdapter

    class Adapter(HTTPAdapter):
        def get_connection_with_tls_context(self, *words: Any, **named: Any) -> Any:
            pool: Any = super().get_connection_with_tls_context(*words, **named)
            pool.ConnectionCls = exchange.bounded(pool.ConnectionCls, "_new_conn")
            return pool

    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, Adapter())
    return session


async def deliver(
    attempt: Callable[[], None],
    on_trouble: Callable[[Undelivered, float], None],
    *,
    give_up_after_s: float | None = None,
) -> Undelivered | None:
    """Make attempts until one succeeds, with growing pauses of at most five minutes. `on_trouble` gets each failure and the pause.

    Returns None after a success. Returns the last failure if the failure is final, or if `give_up_after_s` have passed.
    """
    clock, pauses = SystemClock(), Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    started_s = clock.steady_s()
    while True:
        try:
            with anyio.move_on_after(LONGEST_ATTEMPT_S):
                await anyio.to_thread.run_sync(attempt, abandon_on_cancel=True)
                return None
            raise Undelivered(f"it does not answer within {LONGEST_ATTEMPT_S:.0f} s")
        except Undelivered as error:
            pause_s = min(max(pauses.next_s(), error.after_s), _LONGEST_PAUSE_S)
            is_late = give_up_after_s is not None and clock.steady_s() + pause_s - started_s > give_up_after_s
            if error.is_final or is_late:
                return error
            on_trouble(error, pause_s)
        await anyio.sleep(pause_s)
