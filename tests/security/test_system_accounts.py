"""A person who is named like an account of the system does not get that account by `users = same`."""

from __future__ import annotations

import os
import pwd

import pytest

from headrace_agent.host import facts
from headrace_agent.host.account_mapping import parse_accounts
from headrace_agent.runner.host.accounts import NoAccount, account_named
from headrace_agent.settings import AgentSettings

#: Every account of this host that belongs to the system, with `nobody`, whose uid is above those of people.
OF_THE_SYSTEM = sorted(entry.pw_name for entry in pwd.getpwall() if 0 < entry.pw_uid < 1000 or entry.pw_uid == 65_534)


def test_no_account_of_the_system_is_a_persons_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "is_root", lambda: True)
    monkeypatch.setattr(facts, "lowest_uid_of_people", lambda: 1000)
    accounts = AgentSettings(users="same").accounts()
    assert len(OF_THE_SYSTEM) > 2
    for name in OF_THE_SYSTEM:
        with pytest.raises(NoAccount, match=rf"account {name} \(uid \d+\) is a system account.*lowest_uid"):
            account_named(accounts.account_of(name), accounts.lowest_uid_of(name))


def test_an_account_that_the_settings_name_may_be_one_of_the_system() -> None:
    accounts = parse_accounts({"ada": OF_THE_SYSTEM[0]}, 1000)
    assert account_named(accounts.account_of("ada"), accounts.lowest_uid_of("ada")).name == OF_THE_SYSTEM[0]
    lowered = parse_accounts("same", 1)
    assert account_named(OF_THE_SYSTEM[0], lowered.lowest_uid_of(OF_THE_SYSTEM[0])).uid > 0


def test_the_superusers_account_is_no_persons_however_the_settings_are() -> None:
    root = pwd.getpwuid(0).pw_name
    for lowest_uid in (0, 1, 1000, os.getuid()):
        with pytest.raises(NoAccount, match="superuser"):
            account_named(root, lowest_uid)
