"""The pure part of `headrace notify`: files of rules, and what becomes a message."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.client.finished import LogPosition, LostEntries
from headrace.tree_file.problems import UnusableFile
from headrace_cli.notify.command import EXAMPLE
from headrace_cli.notify.notifier import MOST_WAITING, Message, Notifier, NotifyState, Present
from headrace_cli.notify.rules import Rules, Webhook
from headrace_cli.notify.rules_file import read_rules

GOOD = """\
targets:
  hook: {webhook: "http://localhost:1/${PLACE}", headers: {Authorization: "Bearer ${TOKEN}"}, pause: 1s, give_up_after: 1h}
  owners: {mail: ["{user}@example.com"], from: headrace@example.com, server: "mail.example.com:587", user: us, password: "${TOKEN}"}
rules:
  failures: {when: operation_ended, states: failed, pools: [research, "nightly-*"], to: [hook, owners], text: "{user}: {state}"}
  starving: {when: pool_starves, for: 10m, pools: ["/prod/*"], to: hook}
  nodes: {when: node_lost, to: hook}
"""
ENDED = msgspec.structs.replace(EXAMPLE, user="anna", pool="nightly-7", state="failed")


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rules:
    monkeypatch.setenv("PLACE", "room")
    monkeypatch.setenv("TOKEN", "t0ken")
    (tmp_path / "rules.yaml").write_text(GOOD)
    return read_rules(str(tmp_path / "rules.yaml"))


@pytest.fixture
def notifier(rules: Rules) -> Notifier:
    return Notifier(rules, NotifyState(), 1_000)


def sent(notifier: Notifier, target: str) -> Message:
    """The next message, which is delivered."""
    message = notifier.next_message(target)
    assert message is not None
    notifier.on_delivered(target)
    return message


def stored(notifier: Notifier) -> NotifyState:
    """The state as the file has it."""
    return msgspec.json.decode(msgspec.json.encode(notifier.state), type=NotifyState)


def test_variables_of_the_environment_stand_in_for_secrets(rules: Rules) -> None:
    hook = rules.targets["hook"]
    assert hook.to == Webhook(url="http://localhost:1/room", headers={"Authorization": "Bearer t0ken"})
    assert (hook.pause_ms, hook.give_up_after_ms) == (1_000, 3_600_000)
    assert [rule.for_ms for rule in rules.rules] == [0, 600_000, 60_000]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("Bearer ${TOKEN}", "Bearer t0ken", 2, "targets.hook.headers.Authorization"),
        ("${PLACE}", "${NOWHERE}", 2, "NOWHERE is not"),
        ("{webhook:", "{webhok:", 2, "targets.hook.webhok: unknown key; did you mean webhook?"),
        ("{mail:", "{webhook: x, mail:", 3, "targets.owners: has both of `webhook` and `mail`; expected one of them"),
        ("http://localhost", "ftp://localhost", 2, "http://"),
        ("pause: 1s", "pause: 1", 2, "targets.hook.pause: 1 cannot be used; expected a length of time"),
        ("headrace@example.com", "headrace", 3, "targets.owners.from"),
        (":587", "", 3, "mail.example.com:587"),
        ('password: "${TOKEN}"', "password: t0ken", 3, "targets.owners.password"),
        ('"${TOKEN}"}', '"${TOKEN}", security: none}', 3, "starttls or tls"),
        ("operation_ended", "operation_end", 5, "did you mean operation_ended?"),
        ("states: failed", "states: broken", 5, "one of aborted, completed, failed"),
        ("states: failed", "state: failed", 5, "did you mean states?"),
        ("{user}: {state}", "{usr}", 5, "rules.failures.text: usr cannot be used; expected a text with facts"),
        ("{user}: {state}", "{user.real}", 5, "rules.failures.text"),
        (
            "[research,",
            "[/research,",
            5,
            "rules.failures.pools[0]: /research cannot be used; expected names, or patterns",
        ),
        ("for: 10m", "for: long", 6, "rules.starving.for: long cannot be used; expected a length of time"),
        ("when: node_lost, to: hook", "when: node_lost, to: ghost", 7, "rules.nodes.to: ghost cannot be used"),
        ("when: node_lost, to: hook", "when: node_lost, to: owners", 7, "only operations have an owner"),
        ("node_lost", "node_lost, users: [anna]", 7, "rules.nodes.users: unknown key"),
    ],
)
def test_a_mistake_is_named_with_line_key_and_what_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, line: int, words: str
) -> None:
    monkeypatch.setenv("PLACE", "room")
    monkeypatch.setenv("TOKEN", "t0ken")
    file = tmp_path / "rules.yaml"
    assert GOOD.count(old) == 1 or old in ("${PLACE}", "http://localhost")
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(UnusableFile) as caught:
        read_rules(str(file))

    said = str(caught.value)
    assert f"rules.yaml:{line}: " in said
    assert words in said
    assert "t0ken" not in said or "t0ken" not in new


def test_an_end_goes_to_each_target_of_its_rule_and_others_go_nowhere(notifier: Notifier) -> None:
    others = [msgspec.structs.replace(ENDED, **change) for change in ({"state": "completed"}, {"pool": "lab"})]
    for target in ("hook", "owners"):
        assert notifier.on_ended(target, [ENDED, *others], LogPosition(1, 2, 3), None)

    hook, mail = sent(notifier, "hook"), sent(notifier, "owners")
    assert hook.text == mail.text == "anna: failed"
    assert mail.occurrences[0].recipients == ["anna@example.com"]
    assert notifier.next_message("hook") is None
    assert stored(notifier).targets["hook"].position == "1.2.3"


def test_a_mail_has_the_ends_of_one_owner_and_an_end_without_an_owner_is_not_mailed(notifier: Notifier) -> None:
    owners = ("anna", "ben", "anna", "")
    ends = [msgspec.structs.replace(ENDED, user=user, operation=f"op-{nth}") for nth, user in enumerate(owners)]
    notifier.on_ended("owners", ends, LogPosition(), None)

    first, second = sent(notifier, "owners"), sent(notifier, "owners")
    assert [each.about["operation"] for each in first.occurrences] == ["op-0", "op-2"]
    assert [each.about["operation"] for each in second.occurrences] == ["op-1"]
    assert notifier.next_message("owners") is None


def test_a_message_stays_the_same_until_it_is_delivered_also_through_a_restart(
    rules: Rules, notifier: Notifier
) -> None:
    notifier.on_ended("hook", [ENDED], LogPosition(1, 1, 1), None)
    before = notifier.next_message("hook")
    notifier.on_ended("hook", [msgspec.structs.replace(ENDED, operation="later")], LogPosition(1, 2, 1), None)
    again = Notifier(rules, stored(notifier), 9_000)

    assert before is not None
    assert sent(again, "hook").key == before.key
    assert [each.about["operation"] for each in sent(again, "hook").occurrences] == ["later"]
    assert again.state.targets["hook"].since_ms == 1_000


def test_a_target_that_accepts_nothing_is_full_and_says_later_what_was_dropped(
    rules: Rules, notifier: Notifier
) -> None:
    ends = [msgspec.structs.replace(ENDED, operation=f"op-{nth}") for nth in range(MOST_WAITING)]
    notifier.on_ended("hook", ends, LogPosition(), None)
    assert notifier.is_full("hook")
    assert not notifier.is_full("owners")
    notifier.next_message("hook")
    notifier.on_given_up("hook")
    assert not notifier.is_full("hook")

    starving = next(rule for rule in rules.rules if rule.name == "starving")
    pools = {
        f"p{nth}": Present(1, {"pool": f"p{nth}", "path": f"/prod/p{nth}", "tree": "t", "short_of": "share"})
        for nth in range(5_000)
    }
    notifier.on_conditions(starving, "t", pools, 700_000)
    message = sent(notifier, "hook")
    assert (len(message.occurrences), message.dropped) == (2 * MOST_WAITING, MOST_WAITING + 3_000)
    assert "could not be delivered" in message.text


def test_lost_entries_are_notified(notifier: Notifier) -> None:
    notifier.on_ended("owners", [], LogPosition(1, 90), LostEntries(5, 80))
    notifier.on_ended("hook", [], LogPosition(1, 90), LostEntries(5, 80))
    assert "entries 5 to 80 of the log" in sent(notifier, "hook").text


def test_a_pool_is_notified_once_for_each_time_that_it_starves_long_enough(rules: Rules, notifier: Notifier) -> None:
    starving = next(rule for rule in rules.rules if rule.name == "starving")

    def at(now_s: int, since_s: int | None, path: str = "/prod/web") -> bool:
        about = {"pool": "web", "path": path, "tree": "t", "status": "starving", "short_of": "fair share"}
        present = {} if since_s is None else {"web": Present(since_s * 1000, about)}
        return notifier.on_conditions(starving, "t", present, now_s * 1000)

    assert not at(700, 200)
    assert at(801, 200)
    assert not at(900, 200)
    assert not at(1_000, 950)  # it had enough for a moment
    assert at(1_550, 950)
    assert not at(1_600, None)
    assert not at(2_000, 1, path="/lab/web")
    assert "pool /prod/web of tree t starves since" in sent(notifier, "hook").text


def test_a_node_that_was_not_heard_is_notified_when_that_lasts(rules: Rules, notifier: Notifier) -> None:
    lost = next(rule for rule in rules.rules if rule.name == "nodes")
    present = {"n1": Present(None, {"node": "n1", "tree": "t", "state": "unheard", "jobs": 3})}

    assert not notifier.on_conditions(lost, "t", present, 10_000)
    again = Notifier(rules, stored(notifier), 20_000)
    assert again.on_conditions(lost, "t", present, 70_000)
    assert not again.on_conditions(lost, "t", present, 80_000)
    assert "node n1 of tree t is unheard" in sent(again, "hook").text


@pytest.mark.parametrize(
    ("rule", "interval_s", "gap_s", "text"),
    [
        ("starving", 10, 600, ""),
        ("starving", 10, 601, "pools of tree t were not watched since"),
        ("nodes", 10, 60, ""),
        ("nodes", 10, 61, "nodes of tree t were not watched since"),
        ("nodes", 100, 200, ""),
    ],
)
def test_a_time_without_looks_is_notified_once_if_something_may_have_begun_and_ended(
    rules: Rules, rule: str, interval_s: int, gap_s: int, text: str
) -> None:
    chosen = next(each for each in rules.rules if each.name == rule)
    before = Notifier(rules, NotifyState(), 0, interval_s * 1000)
    assert not before.on_conditions(chosen, "t", {}, 5_000)

    after = Notifier(rules, stored(before), 5_000, interval_s * 1000)
    assert after.on_conditions(chosen, "t", {}, 5_000 + gap_s * 1000) is bool(text)
    assert not after.on_conditions(chosen, "t", {}, 6_000 + gap_s * 1000)
    if text:
        message = sent(after, "hook")
        assert text in message.text
        assert [each.kind for each in message.occurrences] == ["not_watched"]
    assert after.next_message("hook") is None
