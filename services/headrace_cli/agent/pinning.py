"""Get the certificate authority of a server from the server itself and verify it by a SHA-256 that is known beforehand."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import urllib.parse
from typing import Any, Final

from headrace.client.errors import NotAdmitted, NotRunning
from headrace.server_urls import parse_server_urls

_ANSWER_S: Final = 10.0
_CERTIFICATE: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def sha256_of(certificates: str) -> str:
    """Return the SHA-256 of the first PEM certificate in the text, or an empty string if it has none."""
    first = _CERTIFICATE.search(certificates)
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[0])).hexdigest() if first else ""


def shown_authority(urls: str, sha256: str) -> str:
    """Return the PEM certificate with this SHA-256 from the chain that the server presents. No data is sent to the server.

    Raises `BadInput`, `NotRunning`, and `NotAdmitted` if the server presents no certificate with this SHA-256.
    """
    trouble: Exception | None = None
    for url in parse_server_urls(urls, place="URL"):
        try:
            shown = _shown_by(url)
        except OSError as error:
            trouble = error
            continue
        for certificate in shown:
            if sha256_of(certificate) == sha256:
                return certificate
        found = ", ".join(sha256_of(certificate)[:16] + "…" for certificate in shown)
        raise NotAdmitted(
            url,
            f"it presents no certificate authority with SHA-256 {sha256}. The certificates that it presents have {found}. It may be "
            "another server, or its `server.pem` does not end with the certificate of the authority",
        )
    raise NotRunning(urls, str(trouble))


def _shown_by(url: str) -> list[str]:
    address = urllib.parse.urlsplit(url)
    # No certificate is trusted at this point. The caller compares the presented chain with the known SHA-256.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    where = (address.hostname or "127.0.0.1", address.port or 4222)
    with (
        socket.create_connection(where, timeout=_ANSWER_S) as plain,
        context.wrap_socket(plain, server_hostname=address.hostname) as secure,
    ):
        # The private attribute is used because the public `SSLSocket.get_unverified_chain` exists only from Python 3.13 on, and returns
        # bytes instead of certificate objects.
        inner: Any = secure._sslobj  # type: ignore[attr-defined]
        return [certificate.public_bytes() for certificate in inner.get_unverified_chain() or ()]
