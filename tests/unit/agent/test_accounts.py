"""The setting `users` of the agent: which person's jobs run as which account."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import BadInput
from headrace_agent.host import facts
from headrace_agent.host.account_mapping import AccountMapping, parse_accounts
from headrace_agent.settings import AgentSettings


@pytest.mark.parametrize(
    ("users", "found"),
    [
        ("", {"ada": "(none)", "bob": "(none)"}),
        ("agent", {"ada": "", "bob": ""}),
        ("same", {"ada": "ada", "bob": "bob"}),
        ("ada=science, bob=bob", {"ada": "science", "bob": "bob", "eve": "(none)"}),
        ({"ada": "science"}, {"ada": "science", "bob": "(none)"}),
    ],
)
def test_a_person_has_the_account_that_the_setting_says(users: dict[str, str] | str, found: dict[str, str]) -> None:
    accounts = parse_accounts(users)

    assert {person: accounts.account_of(person) for person in found} == found


@pytest.mark.parametrize("users", ["ada", "ada=", "=ada", {"ada": ""}, {"ada": "a" * 65}])
def test_what_names_no_account_is_refused(users: dict[str, str] | str) -> None:
    with pytest.raises(BadInput, match="users"):
        parse_accounts(users)


def test_an_agent_that_is_not_root_maps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = AgentSettings(users="same")
    monkeypatch.setattr(facts, "is_root", lambda: False)

    assert settings.accounts() == AccountMapping()
    assert "only root" in settings.warning_of_accounts()
    assert not AgentSettings().warning_of_accounts()

    monkeypatch.setattr(facts, "is_root", lambda: True)

    assert settings.accounts() == AccountMapping(is_same=True, lowest_uid=facts.lowest_uid_of_people())
    assert not settings.warning_of_accounts()


@pytest.mark.parametrize(("users", "words"), [("agent", "all jobs run as root"), ("", "no job starts")])
def test_an_agent_that_is_root_says_loudly_what_that_means(
    users: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "is_root", lambda: True)

    assert words in AgentSettings(users=users).warning_of_accounts()


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        ("# UID_MIN 1\nUID_MAX 60000\nUID_MIN\t\t  500\n", 500),
        ("SYS_UID_MIN 101\n", 1000),
        ("UID_MIN x\n", 1000),
        (None, 1000),
    ],
)
def test_uids_of_people_begin_where_the_hosts_tools_begin(tmp_path: Path, text: str | None, uid: int) -> None:
    definitions = tmp_path / "login.defs"
    if text is not None:
        definitions.write_text(text)

    assert facts.lowest_uid_of_people(definitions) == uid
