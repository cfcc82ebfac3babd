"""Two ways for a server to know whom to admit: passwords in its configuration, or credentials signed by an operator.

With an operator, the server's configuration names no user. The operator's files are in the folder `authority`, which no
service reads: `operator.seed`, `account.seed` and `system.seed` are the keys, and `account.jwt` is the JWT of the
account. `issued.json` contains the public key of each credential. `headrace cluster push` connects with `credential`.

Admission gets the signing keys `operator-signing.seed` and `account-signing.seed`, with which it lets hosts join, and the
credential `admission`. Only these three files can be replaced. The public key of a replaced signing key stays in the file
of the new signing key until the replaced key is revoked.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from headrace.access import jwt
from headrace.access.account_authority import (
    OPERATOR_INBOX,
    AccountAuthority,
    connections_subject,
    jwt_lookup_subject,
    jwt_update_subject,
    next_jwt,
    received_subject,
)
from headrace.access.key_credential import KeyCredential, read_key_credential
from headrace.access.nkeys import SECRET_BYTES, KeyKind, SigningKey
from headrace.access.permissions import Party, server_users
from headrace.client.places.endpoint import CREDENTIAL_FILE
from headrace.errors import BadInput
from headrace.files.durable import make_folder_durably, replace_durably
from headrace_cli.up.state_folder import StateFolder

_ISSUED: Final = "issued.json"
_ACCOUNT_WORD: Final = "account.jwt"
_SYSTEM_WORD: Final = "system.jwt"
_OPERATOR_SIGNING: Final = "operator-signing.seed"
_ACCOUNT_SIGNING: Final = "account-signing.seed"
_ADMISSION: Final = "admission"
_FORMER_ADMISSION: Final = "admission.former"
#: Time that a revocation for ever names, in seconds since 1970: the year 2242. A revocation rejects all JWTs of the key that were signed
#: before its time, so it rejects every JWT, whatever the clock showed when the JWT was signed.
_FOREVER_S: Final = 2**33
#: Seconds by which a new account JWT is dated ahead if the signing keys of the account have changed. So the new JWT is later than every
#: account JWT that admission has signed, and the server keeps the latest account JWT. If the server kept a JWT signed by a key that no
#: longer counts, no client could connect.
_AHEAD_S: Final = 3_600


class Proofs(Protocol):
    """Makes the credentials of parties and the matching part of the server's configuration."""

    def let_in(self, party: Party, file: Path, user: str) -> None:
        """Write a credential, or keep the existing one. Raises OSError."""
        ...

    def server_part(self, server: Path) -> str:
        """Return the part of a server's configuration that admits all parties. `server` is the folder of the server.

        Call it after the last `let_in`. Raises OSError.
        """
        ...

    def account_authority(self) -> AccountAuthority | None:
        """Return the keys with which admission lets hosts join. Raises OSError.

        Return None for a cluster with passwords, because hosts cannot join such a cluster with a token.
        """
        ...

    def finish(self) -> None:
        """Remove what a repeated `rekey --end-old` would need. Call it after the last server's configuration is written."""
        ...


class Passwords:
    """A password for each party, all of them in the server's configuration."""

    def __init__(self, files: StateFolder) -> None:
        self._files = files
        self._users: dict[Party, dict[str, str]] = {}

    def let_in(self, party: Party, file: Path, user: str) -> None:
        self._users[party] = {"user": user, "password": self._files.secret(file, user)}

    def server_part(self, server: Path) -> str:
        return server_users(self._users)

    def account_authority(self) -> None:
        return None

    def finish(self) -> None:
        pass


class Operator:
    """A key for each party, with a JWT signed by the account. Keys of parties that are no longer admitted are revoked."""

    def __init__(self, folder: Path, now_s: Callable[[], int]) -> None:
        """Read the keys, or make missing ones. Raises OSError, and `BadInput` for a file without a key of its kind."""
        self._folder = folder
        self._now_s = now_s
        make_folder_durably(folder)
        self._operator = self._key(folder / "operator.seed", KeyKind.OPERATOR)
        self._account = self._key(folder / "account.seed", KeyKind.ACCOUNT)
        self._system = self._key(folder / "system.seed", KeyKind.ACCOUNT)
        self._operator_signing = self._key(folder / _OPERATOR_SIGNING, KeyKind.OPERATOR)
        self._account_signing = self._key(folder / _ACCOUNT_SIGNING, KeyKind.ACCOUNT)
        self._issued: dict[str, str] = {}

    def let_in(self, party: Party, file: Path, user: str) -> None:
        known = read_key_credential(file.read_text(encoding="utf-8")) if file.exists() else None
        if known is not None and SigningKey.from_seed(known.seed).public in _revoked_in(self._folder / _ACCOUNT_WORD):
            file.unlink()  # The server admits no credential with a revoked key, so the party needs another key.
        key, _ = self._issue(file, self._account, lambda key: jwt.user_claims(key.public, user, party))
        self._issued[user] = key.public

    def server_part(self, server: Path) -> str:
        self._issue_system(CREDENTIAL_FILE, "operator")
        accounts = {self._account.public: self._word_of_account(), self._system.public: self._word_of_system()}
        signing = [self._operator_signing.public, *self._former_of(_OPERATOR_SIGNING)]
        claims = jwt.operator_claims(self._operator, self._system.public, signing)
        operator = self._word(self._folder / "operator.jwt", self._operator, claims)
        preload = "\n".join(f"  {public}: {word}" for public, word in accounts.items())
        return (
            "# The first line that a service sends contains its permissions.\nmax_control_line: 32KB\n"
            f"operator: {operator}\nsystem_account: {self._system.public}\n"
            f"resolver {{ type: full, dir: {json.dumps(str(server / 'accounts'))}, allow_delete: false }}\n"
            f"resolver_preload {{\n{preload}\n}}\n"
        )

    def account_authority(self) -> AccountAuthority:
        return AccountAuthority(
            account=self._account.public,
            account_seed=self._account_signing.seed,
            operator_seed=self._operator_signing.seed,
            system=self._issue_system(_ADMISSION, "admission", received_subject, connections_subject),
        )

    def finish(self) -> None:
        # While the file of admission's former credential exists, an interrupted `cluster rekey --end-old` can be repeated. If it could not
        # be repeated, servers whose configuration was not written would continue to accept the former keys.
        if not self._former_of(_OPERATOR_SIGNING):
            (self._folder / _FORMER_ADMISSION).unlink(missing_ok=True)

    def replace_keys(self) -> None:
        """Make new signing keys for admission. Credentials signed by the former keys stay valid until `end_former_keys`.

        Raises OSError, `BadInput`.
        """
        kinds = {_OPERATOR_SIGNING: KeyKind.OPERATOR, _ACCOUNT_SIGNING: KeyKind.ACCOUNT}
        if all(self._former_of(name) for name in kinds):
            fault = (
                "the former keys have not been revoked. Run `headrace cluster rekey --end-old` first. If an earlier "
                "`headrace cluster rekey` was interrupted, run `headrace cluster init` with the options of the cluster to finish it"
            )
            raise BadInput.because(str(self._folder), fault)
        # Continue an interrupted replacement: skip the keys that were already replaced.
        for name in (name for name in kinds if not self._former_of(name)):
            former = self._key(self._folder / name, kinds[name]).public
            replace_durably(self._folder / name, f"{_new_key(kinds[name]).seed}\n{former}\n")
        if (self._folder / _ADMISSION).exists() and not (self._folder / _FORMER_ADMISSION).exists():
            (self._folder / _ADMISSION).rename(self._folder / _FORMER_ADMISSION)

    def end_former_keys(self) -> None:
        """Revoke the replaced keys and every credential that they signed. Raises OSError, and `BadInput` if no key was replaced."""
        if not self._has_former():
            raise BadInput.because(
                str(self._folder),
                "there are no former keys to revoke. Run `headrace cluster rekey` first, which replaces the present keys",
            )
        for name in (_OPERATOR_SIGNING, _ACCOUNT_SIGNING):
            seed = (self._folder / name).read_text(encoding="utf-8").split()[0]
            replace_durably(self._folder / name, seed + "\n")

    @property
    def account(self) -> str:
        """Return the public key of the account."""
        return self._account.public

    @property
    def has_revoked(self) -> bool:
        """True if any key of the account is revoked."""
        return bool(_revoked_in(self._folder / _ACCOUNT_WORD))

    def jwt_after(self, known: str) -> str | None:
        """Return the account JWT that must replace `known`, the account JWT of the server.

        The new JWT has the claims of this folder and, in addition, all revocations in `known`. Returns None if `known` is up to date.
        """
        own, there = jwt.claims_of(self._account_jwt()), jwt.claims_of(known)
        claims = jwt.with_revoked(own, jwt.revoked_by(there))
        signers = (self._operator.public, self._operator_signing.public, *self._former_of(_OPERATOR_SIGNING))
        is_known = claims["nats"] == there["nats"] and there["iss"] in signers
        return None if is_known else next_jwt(self._operator, known, claims, self._now_s())

    def _account_jwt(self) -> str:
        file = self._folder / _ACCOUNT_WORD
        try:
            return file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise BadInput.because(
                str(file), "the file with the account JWT is missing. `headrace cluster init` wrote it"
            ) from None

    def _issue_system(self, file: str, name: str, *more: Callable[[str], str]) -> KeyCredential:
        """Return the credential of a user in the server's system account, who may look up and update the account JWT, and
        publish on `more` subjects of the account.
        """
        rights = tuple(of(self._account.public) for of in (jwt_update_subject, jwt_lookup_subject, *more))
        return self._issue(
            self._folder / file, self._system, lambda key: jwt.system_claims(key.public, name, rights, OPERATOR_INBOX)
        )[1]

    def _word_of_account(self) -> str:
        file = self._folder / _ACCOUNT_WORD
        revoked = _revoked_in(file)
        for user, public in self._read_issued().items():
            if self._issued.get(user) != public:
                revoked[public] = _FOREVER_S
        signing = [self._account_signing.public, *self._former_of(_ACCOUNT_SIGNING)]
        claims = jwt.account_claims(self._account, "headrace", revoked, has_jetstream=True, signing_keys=signing)
        has_other_keys = file.exists() and _signing_keys(file.read_text(encoding="utf-8")) != signing
        word = self._word(file, self._operator, claims, ahead_s=_AHEAD_S if has_other_keys else 0)
        # Write the list of issued keys only after the account JWT: a crash between the two writes must not lose a revocation.
        replace_durably(self._folder / _ISSUED, json.dumps(self._issued, indent=1) + "\n")
        return word

    def _word_of_system(self) -> str:
        file, former = self._folder / _SYSTEM_WORD, self._folder / _FORMER_ADMISSION
        revoked = _revoked_in(file)
        is_over = former.exists() and not self._former_of(_OPERATOR_SIGNING)
        if is_over and (known := read_key_credential(former.read_text(encoding="utf-8"))) is not None:
            revoked[SigningKey.from_seed(known.seed).public] = _FOREVER_S
        claims = jwt.account_claims(self._system, "system", revoked, has_jetstream=False)
        return self._word(file, self._operator, claims)

    def _has_former(self) -> bool:
        replaced = (_OPERATOR_SIGNING, _ACCOUNT_SIGNING)
        return any(map(self._former_of, replaced)) or (self._folder / _FORMER_ADMISSION).exists()

    def _former_of(self, name: str) -> list[str]:
        """Return the public keys of the former keys in this file: keys that were replaced and are not revoked."""
        return (self._folder / name).read_text(encoding="utf-8").split()[1:]

    def _read_issued(self) -> dict[str, str]:
        file = self._folder / _ISSUED
        try:
            return msgspec.json.decode(file.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            raise BadInput.because(
                str(file),
                f"the list of public keys cannot be read ({error}). Restore the file as `headrace cluster init` wrote it",
            ) from None

    def _issue(
        self, file: Path, issuer: SigningKey, claims: Callable[[SigningKey], Mapping[str, object]]
    ) -> tuple[SigningKey, KeyCredential]:
        """Return the key and the credential in a file. The key is kept or made; the JWT is signed again if its claims changed."""
        known = read_key_credential(file.read_text(encoding="utf-8")) if file.exists() else None
        key = SigningKey.from_seed(known.seed) if known else _new_key(KeyKind.USER)
        wanted = claims(key)
        if known is None or not jwt.says(known.jwt, wanted, issuer):
            known = KeyCredential(jwt=jwt.signed(issuer, wanted, self._now_s()), seed=key.seed)
            replace_durably(file, known.text())
        return key, known

    def _key(self, file: Path, kind: KeyKind) -> SigningKey:
        if not file.exists():
            replace_durably(file, _new_key(kind).seed + "\n")
        key = SigningKey.from_seed((file.read_text(encoding="utf-8").split() or [""])[0])
        if key.kind is not kind:
            raise BadInput.because(
                str(file),
                f"the key in this file is of kind {key.kind.name.lower()}; it must be of kind {kind.name.lower()}",
            )
        return key

    def _word(self, file: Path, issuer: SigningKey, claims: Mapping[str, object], *, ahead_s: int = 0) -> str:
        at_s = self._now_s()
        if file.exists():
            known = file.read_text(encoding="utf-8").strip()
            if jwt.says(known, claims, issuer):
                return known
            # The server keeps the latest JWT that it ever received. Of two JWTs from the same second it may keep either, so this JWT must
            # be later.
            at_s = max(at_s, jwt.claims_of(known)["iat"] + 1)
        word = jwt.signed(issuer, claims, at_s + ahead_s)
        replace_durably(file, word + "\n")
        return word


def _signing_keys(word: str) -> list[str]:
    keys: list[str] = jwt.claims_of(word.strip())["nats"].get("signing_keys", [])
    return keys


def _revoked_in(file: Path) -> dict[str, int]:
    known = jwt.claims_of(file.read_text(encoding="utf-8").strip()) if file.exists() else {}
    return dict(jwt.revoked_by(known)) if known else {}


def _new_key(kind: KeyKind) -> SigningKey:
    return SigningKey(kind, secrets.token_bytes(SECRET_BYTES))
