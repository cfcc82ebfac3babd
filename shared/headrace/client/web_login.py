"""The login of a browser at a shared web service: requests over HTTPS, and a token for the key of the session."""

from __future__ import annotations

import http.client
import ssl
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from headrace.access.web_login import BEGIN_PATH, FINISH_PATH, BeginLogin, FinishLogin, LoginBegun, LoginFinished
from headrace.client.client import Client
from headrace.client.errors import NotAdmitted, NotRunning, NotTrusted
from headrace.errors import BadInput, shortened
from headrace.wire.access_tokens import AccessToken

A = TypeVar("A", bound=msgspec.Struct)

#: Seconds for each step of a connection, and for a whole request.
_STEP_S: Final = 20.0
_TIMEOUT_S: Final = 60.0
#: Largest answer, in bytes.
_LARGEST_BYTES: Final = 64 * 1024


class BrowserLogin(NamedTuple):
    """The way in for a browser, and the token with which the web service acts for it."""

    #: Address that lets one browser in. It is a secret until it is used.
    url: str
    #: Seconds for which the address can be used.
    lifetime_s: int
    token: AccessToken


class _Refusal(msgspec.Struct, frozen=True):
    """A problem document, as far as it is shown."""

    detail: str


async def log_in_browser(
    client: Client, url: str, *, ca_file: str = "", name: str = "", read_only: bool = False, lifetime_ms: int
) -> BrowserLogin:
    """Have a web service make a key for a session, make a token for this key, and return the address for the browser.

    The service can act with the token until it ends. `ca_file` has the authorities that vouch for the service. Empty: those of the system
    and the one of the cluster.

    Raises `BadInput`, `NotRunning`, `NotTrusted`, `NotAdmitted` if the service refuses, `Refused`, `Unanswered`.
    """
    service = _Service(url, _trust(ca_file, client.place.ca_file))
    begun = await service.ask(BEGIN_PATH, BeginLogin(client.user), LoginBegun)
    made = await client.tokens.create_for(
        begun.key,
        begun.proof,
        name=name or f"browser at {service.host}"[:60],
        read_only=read_only,
        lifetime_ms=lifetime_ms,
    )
    finished = await service.ask(FINISH_PATH, FinishLogin(begun.login, made.jwt), LoginFinished)
    return BrowserLogin(f"{service.origin}/#ticket={finished.ticket}", finished.lifetime_s, made.token)


class _Service:
    """A web service at an address."""

    def __init__(self, url: str, trust: ssl.SSLContext) -> None:
        expected = "the address of a web service, such as https://headrace.example:8040"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise BadInput("address", url, expected) from None
        if parts.scheme == "http":
            # The JWT and the ticket would be readable on the way.
            raise BadInput("address", url, f"an address with https://; {expected}")
        is_plain = parts.path in ("", "/") and not (parts.query or parts.fragment or "@" in parts.netloc)
        if parts.scheme != "https" or not host or not is_plain:
            raise BadInput("address", url, expected)
        self.host = host
        self.origin = f"https://{parts.netloc}"
        self._port = port
        self._trust = trust

    async def ask(self, path: str, request: msgspec.Struct, kind: type[A]) -> A:
        """Send a request and return its answer. Raises `NotRunning`, `NotTrusted`, `NotAdmitted`."""
        try:
            with anyio.fail_after(_TIMEOUT_S):
                status, data = await anyio.to_thread.run_sync(self._post, path, request, abandon_on_cancel=True)
        except ssl.SSLCertVerificationError as error:
            raise NotTrusted(
                self.origin, f"{error.verify_message}; `--ca FILE` names the authority of its certificate"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise NotRunning(self.origin, str(error) or type(error).__name__) from None
        try:
            if status == 200:
                return msgspec.json.decode(data, type=kind)
            refusal = msgspec.json.decode(data, type=_Refusal).detail
        except msgspec.DecodeError:
            raise NotAdmitted(
                self.origin, f"it answers {status} and no message of a shared `headrace web`; check the address"
            ) from None
        raise NotAdmitted(self.origin, shortened(refusal))

    def _post(self, path: str, request: msgspec.Struct) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(self.host, self._port, timeout=_STEP_S, context=self._trust)
        try:
            connection.request("POST", path, msgspec.json.encode(request), {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read(_LARGEST_BYTES)
        finally:
            connection.close()


def _trust(ca_file: str, of_cluster: str) -> ssl.SSLContext:
    """Return what vouches for the certificate of the service. Raises `BadInput`."""
    try:
        if ca_file:
            return ssl.create_default_context(cafile=ca_file)
        trust = ssl.create_default_context()
        if of_cluster:
            trust.load_verify_locations(of_cluster)
        return trust
    except (OSError, ssl.SSLError) as error:
        raise BadInput("--ca", ca_file or of_cluster, f"a file with certificates in PEM ({error})") from None
