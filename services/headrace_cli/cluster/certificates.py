"""Make a certificate authority and the certificate of a server, in PEM.

`write_certificates` keeps the authority in a folder (`ca.key`, `ca.pem`) beside the files of the server (`server.key`,
`server.pem`). Only the owner can read the files. `new_certificates` makes a new authority and a new server certificate
and discards the authority's key.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.client.places.endpoint import AUTHORITY_FILE
from headrace.errors import BadInput
from headrace.files.durable import make_folder_durably, replace_durably

SERVER_FILES: Final = ("server.pem", "server.key")
_AUTHORITY_KEY: Final = "ca.key"
_AUTHORITY_TIME: Final = datetime.timedelta(days=3650)
#: Validity of a server certificate. Some clients refuse certificates that are valid for longer.
_SERVER_TIME: Final = datetime.timedelta(days=397)
#: Time by which certificates are backdated, because the clock of a host may be slightly behind.
_BEHIND: Final = datetime.timedelta(hours=1)


class _Validity(NamedTuple):
    begin: datetime.datetime
    end: datetime.datetime


#: Validity without an end. The clock of a machine may jump by years, and its server must still be trusted. RFC 5280
#: defines this end date to mean "none".
_ALWAYS: Final = _Validity(
    datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC), datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
)


def write_certificates(folder: Path, names: list[str], now: datetime.datetime) -> str:
    """Keep or make the authority, make a new certificate for the server, and return the authority's SHA-256.

    `names` are DNS names and addresses of the server. Raises OSError, and `BadInput` for an invalid name or an
    unreadable authority.
    """
    alternatives = [_alternative(name) for name in names]
    make_folder_durably(folder)
    key, authority = _authority(folder, now)
    validity = _Validity(now - _BEHIND, now + _SERVER_TIME)
    for name, text in _server_files(names[0], alternatives, key, authority, validity).items():
        replace_durably(folder / name, text)
    return hashlib.sha256(authority.public_bytes(serialization.Encoding.DER)).hexdigest()


def new_certificates(address: str) -> dict[str, str]:
    """Return `ca.pem`, `server.pem` and `server.key` for a server at this address. The two certificates never expire.

    The authority's key is stored nowhere, so that it can never sign another certificate. Raises `BadInput` for an
    invalid address.
    """
    key, authority = _new_authority(_ALWAYS)
    server = _server_files(address, [_alternative(address)], key, authority, _ALWAYS)
    return {AUTHORITY_FILE: _pem(authority), **server}


def _server_files(
    name: str,
    alternatives: list[x509.GeneralName],
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    validity: _Validity,
) -> dict[str, str]:
    server_key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])]), validity)
        .issuer_name(authority.subject)
        .public_key(server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        # The certificate is also valid for clients: the servers of a cluster are clients of each other.
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(_key_identifier_of(authority), critical=False)
        .sign(key, hashes.SHA256())
    )
    return dict(zip(SERVER_FILES, (_pem(certificate), _key_text(server_key)), strict=True))


def _authority(folder: Path, now: datetime.datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key_file, file = folder / _AUTHORITY_KEY, folder / AUTHORITY_FILE
    if key_file.exists() or file.exists():
        try:
            key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
            authority = x509.load_pem_x509_certificate(file.read_bytes())
        except (ValueError, TypeError, FileNotFoundError):
            raise BadInput.because(
                str(folder),
                f"the certificate authority is missing or damaged. `headrace tls init` writes it as {_AUTHORITY_KEY} and {AUTHORITY_FILE}",
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
            raise BadInput.because(str(key_file), f"this key does not belong to the certificate in {file}")
        return key, authority
    key, authority = _new_authority(_Validity(now - _BEHIND, now + _AUTHORITY_TIME))
    replace_durably(key_file, _key_text(key))
    replace_durably(file, _pem(authority))
    return key, authority


def _new_authority(validity: _Validity) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Headrace development authority")])
    authority = (
        _builder(name, validity)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_authority_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return key, authority


def _builder(subject: x509.Name, validity: _Validity) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, serial_number=x509.random_serial_number())
    return builder.not_valid_before(validity.begin).not_valid_after(validity.end)


def _authority_usage() -> x509.KeyUsage:
    others = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    unused = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(key_cert_sign=True, crl_sign=True, **unused)


def _key_identifier_of(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    known = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        if not name or any(character in name for character in "/: "):
            raise ValueError
        return x509.DNSName(name)
    except ValueError:
        raise BadInput("name", name, "a DNS name or an address, such as 10.0.0.1") from None


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()).decode()
