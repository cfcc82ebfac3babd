"""The accounts of this host as which persons' jobs run."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.errors import BadInput
from headrace.wire.heartbeat import LONGEST_ACCOUNT

#: The setting by which each person's jobs run as the account of the same name.
SAME = "same"


class Accounts(msgspec.Struct, frozen=True):
    """The mapping from persons to accounts. Whoever has none gets the agent's own account."""

    by_person: Mapping[str, str] = {}
    #: True if a person who is not named there has the account of the same name.
    is_same: bool = False

    def account_of(self, person: str) -> str:
        """The account of a person, empty for the agent's own."""
        return self.by_person.get(person, person if self.is_same else "")[:LONGEST_ACCOUNT]


def parse_accounts(users: Mapping[str, str] | str) -> Accounts:
    """Reads the setting `users`: `same`, a table, or `PERSON=ACCOUNT,…`. Raises `BadInput`."""
    if users == SAME:
        return Accounts(is_same=True)
    pairs = users.items() if not isinstance(users, str) else map(_pair, filter(None, users.split(",")))
    found = dict(pairs)
    for person, account in found.items():
        if not person or not account or len(account) > LONGEST_ACCOUNT:
            raise BadInput(
                f"users: {person!r}", account, f"the name of an account, of at most {LONGEST_ACCOUNT} letters"
            )
    return Accounts(found)


def _pair(text: str) -> tuple[str, str]:
    person, equals, account = text.partition("=")
    if not equals:
        raise BadInput("users", text, f"`{SAME}`, or PERSON=ACCOUNT with commas between them")
    return person.strip(), account.strip()
