"""The mapping from each person to the account of this host that the person's jobs run as."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.errors import BadInput
from headrace.wire.heartbeat import LONGEST_ACCOUNT
from headrace_agent.runner.protocol import NO_ACCOUNT

#: Type of the setting `users`, as it is written in the settings.
UsersSetting = Mapping[str, str] | str

#: Value of `users`: the jobs of each person run as the account with the person's name.
SAME = "same"
#: Value of `users`: all jobs run as the agent's own account, even if that is root.
AGENT = "agent"


class AccountMapping(msgspec.Struct, frozen=True):
    """The mapping from persons to accounts, as the setting `users` defines it."""

    by_person: Mapping[str, str] = {}
    #: True if a person who is not in `by_person` has the account with the person's name.
    is_same: bool = False
    #: Account of all persons to whom neither `by_person` nor `is_same` applies. Empty: the agent's own account. `NO_ACCOUNT`: these persons
    #: have no account, so their jobs do not start.
    of_others: str = ""
    #: Smallest uid of an account that a person gets because the account has the person's name. 0: any uid but the superuser's.
    lowest_uid: int = 0

    def account_of(self, person: str) -> str:
        """Return the account of a person; empty for the agent's own account."""
        return self.by_person.get(person, person if self.is_same else self.of_others)[:LONGEST_ACCOUNT]

    def lowest_uid_of(self, person: str) -> int:
        """Return the smallest uid that the account of a person may have. It is 0 (any uid) if the settings name the account."""
        return self.lowest_uid if self.is_same and person not in self.by_person else 0


def parse_accounts(users: UsersSetting, lowest_uid: int = 0) -> AccountMapping:
    """Parse the setting `users` of an agent that runs as root: `same`, `agent`, a table, or `PERSON=ACCOUNT,…`.

    Persons that a table or the pairs do not name have no account. If their jobs ran as the agent's own account, which is root, they could
    do anything on the host. Raises `BadInput`.
    """
    if users == SAME:
        return AccountMapping(is_same=True, lowest_uid=lowest_uid)
    if users == AGENT:
        return AccountMapping()
    pairs = users.items() if not isinstance(users, str) else map(_pair, filter(None, users.split(",")))
    found = dict(pairs)
    for person, account in found.items():
        if not person or not account or len(account) > LONGEST_ACCOUNT:
            raise BadInput(
                f"users: {person!r}", account, f"the name of an account, of at most {LONGEST_ACCOUNT} characters"
            )
    return AccountMapping(found, of_others=NO_ACCOUNT)


def _pair(text: str) -> tuple[str, str]:
    person, equals, account = text.partition("=")
    if not equals:
        raise BadInput("users", text, f"`{SAME}`, `{AGENT}`, or pairs PERSON=ACCOUNT with commas between them")
    return person.strip(), account.strip()
