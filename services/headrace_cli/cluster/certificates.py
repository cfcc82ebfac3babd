"""A development authority and the certificate of a server by its word, as files in PEM for their owner only.

`ca.key` and `ca.pem` are the authority. `server.key` and `server.pem` are for the server.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace.client.places.endpoint import AUTHORITY_FILE
from headrace.durable_files import make_folder_durably, replace_durably
from headrace.errors import BadInput

SERVER_FILES: Final = ("server.pem", "server.key")
_AUTHORITY_KEY: Final = "ca.key"
_AUTHORITY_TIME: Final = datetime.timedelta(days=3650)
#: Clients are known that refuse certificates for longer.
_SERVER_TIME: Final = datetime.timedelta(days=397)
#: Clocks of hosts may be a little behind.
_BEHIND: Final = datetime.timedelta(hours=1)


def write_certificates(folder: Path, names: list[str], now: datetime.datetime) -> str:
    """Keeps the authority or makes one, makes the server's certificate anew, and returns the authority's SHA-256.

    `names` are DNS names and addresses of the server. Raises OSError, and `BadInput` for no name and an authority that cannot be read.
    """
    alternatives = [_alternative(name) for name in names]
    make_folder_durably(folder)
    key, authority = _authority(folder, now)
    server_key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]), now, _SERVER_TIME)
    certificate = (
        builder.issuer_name(authority.subject)
        .public_key(server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        # Servers of a cluster are clients to each other.
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(_key_identifier_of(authority), critical=False)
        .sign(key, hashes.SHA256())
    )
    for name, text in zip(SERVER_FILES, (_pem(certificate), _key_text(server_key)), strict=True):
        replace_durably(folder / name, text)
    return hashlib.sha256(authority.public_bytes(serialization.Encoding.DER)).hexdigest()


def _authority(folder: Path, now: datetime.datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key_file, file = folder / _AUTHORITY_KEY, folder / AUTHORITY_FILE
    if key_file.exists() or file.exists():
        try:
            key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
            authority = x509.load_pem_x509_certificate(file.read_bytes())
        except (ValueError, TypeError, FileNotFoundError):
            raise BadInput(
                str(folder), "(an authority)", f"{_AUTHORITY_KEY} and {AUTHORITY_FILE} as they were written"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
            raise BadInput(str(key_file), "(secret)", f"the key of {file}")
        return key, authority
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Headrace development authority")])
    authority = (
        _builder(name, now, _AUTHORITY_TIME)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_authority_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    replace_durably(key_file, _key_text(key))
    replace_durably(file, _pem(authority))
    return key, authority


def _builder(subject: x509.Name, now: datetime.datetime, time: datetime.timedelta) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, serial_number=x509.random_serial_number())
    return builder.not_valid_before(now - _BEHIND).not_valid_after(now + time)


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
