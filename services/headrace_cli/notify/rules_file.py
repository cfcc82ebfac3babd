"""Files of rules in YAML or JSON. All problems are reported at once, each with line, key, value and what is accepted.

targets:
  operators:
    webhook: ${OPERATORS_WEBHOOK}
  owners:
    mail: ["{user}@example.com"]
    from: headrace@example.com
    server: mail.example.com:587
rules:
  failures:
    when: operation_ended
    states: [failed]
    to: [owners]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headrace.durations import parse_duration_ms
from headrace.errors import BadInput
from headrace.installation.extras import require
from headrace.suggestions import hint
from headrace.tree_file.problems import Problems, shown
from headrace.tree_file.values import STDIN, Listing, Map, parse, read
from headrace.wire.operations import FINAL_STATES
from headrace_cli.notify.rules import FACTS, FILTERS, Mail, Rule, RuleKind, Rules, Target, Webhook, unknown_facts
from headrace_cli.outgoing.delivery import has_variable, is_url, with_variables

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\Z")
_ADDRESS: Final = re.compile(r"[^\s@<>,;\"]+@[^\s@<>,;\"]+\Z")
_SERVER: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[^\s:/]+):(?P<port>[0-9]{1,5})\Z")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
#: Names of headers whose values are secrets.
_SECRET: Final = re.compile(r"auth|token|key|secret|cookie|password", re.IGNORECASE)
_SECURITIES: Final = ("starttls", "tls", "none")
_STATES: Final = sorted(state.value for state in FINAL_STATES)
_SHARED: Final = ("pause", "give_up_after")
_WEBHOOK_KEYS: Final = ("webhook", "headers", *_SHARED)
_MAIL_KEYS: Final = ("mail", "from", "server", "security", "user", "password", *_SHARED)
_DURATION: Final = "a length of time with a unit, such as 30s or 10m"
_DEFAULTS_MS: Final = {"pause": 10_000, "give_up_after": 86_400_000}

#: Default of the key `for`. It is long enough for the start of an allocator, which hears no nodes for some seconds.
_LASTS_MS: Final = {RuleKind.NODE_LOST: 60_000}


def read_rules(path: str) -> Rules:
    """Read a file of rules. Raises `UnusableFile` with all problems."""
    problems = Problems("standard input" if path == STDIN else path)
    root = parse(read(path, problems), problems, "a map with `targets` and `rules`")
    found = _RulesFile(root, problems).rules()
    problems.refuse()
    return found


class _RulesFile:
    def __init__(self, root: Map, problems: Problems) -> None:
        self._root = root
        self._problems = problems

    def rules(self) -> Rules:
        self._refuse_unknown("", self._root, ("targets", "rules"))
        targets = {
            name: target for name, value in self._named("targets") if (target := self._target(name, value)) is not None
        }
        names = list(self._root.get("targets") or ())
        rules = [rule for name, value in self._named("rules") if (rule := self._rule(name, value, names)) is not None]
        for rule in rules:
            self._check_recipients(rule, targets)
        return Rules(rules, targets)

    def _named(self, key: str) -> Iterable[tuple[str, Map]]:
        """Yield the named maps below a key."""
        maps = self._root.get(key)
        if not isinstance(maps, Map) or not maps:
            self._wrong(key, maps, f"a map of at least one of the {key}, by name")
            return
        for name, value in maps.items():
            if not _NAME.match(name):
                self._wrong(f"{key}.{name}", name, "a name of letters, digits, - and _")
            elif not isinstance(value, Map):
                self._wrong(f"{key}.{name}", value, "a map")
            else:
                yield name, value

    def _target(self, name: str, value: Map) -> Target | None:
        place = f"targets.{name}"
        if ("webhook" in value) == ("mail" in value):
            self._refuse_unknown(place, value, dict.fromkeys((*_WEBHOOK_KEYS, *_MAIL_KEYS)))
            self._problems.say(
                place, f"has {'both' if 'mail' in value else 'none'} of `webhook` and `mail`", "one of them"
            )
            return None
        is_mail = "mail" in value
        self._refuse_unknown(place, value, _MAIL_KEYS if is_mail else _WEBHOOK_KEYS)
        to = self._mail(place, value) if is_mail else self._webhook(place, value)
        pause_ms, give_up_after_ms = (
            self._duration(place, value, key, default_ms) for key, default_ms in _DEFAULTS_MS.items()
        )
        return Target(name=name, to=to, pause_ms=pause_ms, give_up_after_ms=give_up_after_ms)

    def _webhook(self, place: str, value: Map) -> Webhook:
        require("export", "a webhook")
        url = self._text(place, value, "webhook", "an address that begins with https:// or http://", is_url)
        headers = value.get("headers", Map(0))
        if not isinstance(headers, Map):
            self._wrong(f"{place}.headers", headers, "a map of headers and their values")
            headers = Map(0)
        found = {}
        for name, text in headers.items():
            key = f"{place}.headers.{name}"
            if not _HEADER.match(name):
                self._wrong(key, name, "the name of a header")
            elif _SECRET.search(name) and not has_variable(str(text)):
                self._wrong(
                    key, "its value", "an environment variable such as ${TOKEN}: secrets do not belong in the file"
                )
            else:
                found[name] = self._text(f"{place}.headers", headers, name, "one line", str.isprintable)
        return Webhook(url=url, headers=found)

    def _mail(self, place: str, value: Map) -> Mail:
        recipients = self._texts(place, value, "mail", lambda text: bool(_ADDRESS.match(text)), "addresses of mail")
        sender = self._text(place, value, "from", "an address of mail", lambda text: bool(_ADDRESS.match(text)))
        server = self._text(place, value, "server", "a host and a port, such as mail.example.com:587", _is_server)
        security = self._text(
            place, value, "security", hint("", _SECURITIES), lambda text: text in _SECURITIES, default="starttls"
        )
        user = self._text(place, value, "user", "a name", str.isprintable, default="")
        if "password" in value and not has_variable(str(value["password"])):
            expected = "an environment variable such as ${SMTP_PASSWORD}: secrets do not belong in the file"
            self._wrong(f"{place}.password", "its value", expected)
        password = self._text(place, value, "password", "one line", str.isprintable, default="")
        if bool(user) != bool(password):
            self._wrong(place, value, "both `user` and `password`, or none of them")
        if password and security == "none":
            self._wrong(f"{place}.security", security, "starttls or tls, since a password is sent")
        found = _SERVER.match(server)
        host, port = (found["host"].strip("[]"), int(found["port"])) if found else ("", 0)
        return Mail(
            recipients=recipients, sender=sender, host=host, port=port, security=security, user=user, password=password
        )

    def _rule(self, name: str, value: Map, targets: list[str]) -> Rule | None:
        place = f"rules.{name}"
        when = value.get("when")
        if when not in list(RuleKind):
            self._wrong(f"{place}.when", when, hint(str(when or ""), list(RuleKind)))
            return None
        kind = RuleKind(when)
        lasts = () if kind is RuleKind.OPERATION_ENDED else ("for",)
        self._refuse_unknown(place, value, ("when", "to", "text", *FILTERS[kind], *lasts))
        to = self._texts(place, value, "to", lambda text: text in targets, f"targets: {hint('', targets)}")
        is_of_pools = kind is RuleKind.POOL_STARVES
        patterns = f"names{' or paths' if is_of_pools else ''}, or patterns such as nightly-*"

        def fits(text: str) -> bool:
            return bool(text) and (is_of_pools or "/" not in text)

        filters = {
            key: self._texts(place, value, key, fits, patterns)
            for key in FILTERS[kind]
            if key in value and key != "states"
        }
        if "states" in value:
            filters["states"] = self._texts(place, value, "states", _STATES.__contains__, hint("", _STATES))
        text = self._text(place, value, "text", "a text", bool, default="")
        try:
            unknown = unknown_facts(text, kind)
        except ValueError:
            unknown = [text]
        if unknown:
            accepted = " ".join(f"{{{fact}}}" for fact in FACTS[kind])
            self._wrong(f"{place}.text", unknown[0], f"a text with facts in braces: {accepted}")
        for_ms = self._duration(place, value, "for", _LASTS_MS.get(kind, 0)) if lasts else 0
        return Rule(name=name, when=kind, to=to, text=text, for_ms=for_ms, **filters)

    def _check_recipients(self, rule: Rule, targets: Mapping[str, Target]) -> None:
        for name in rule.to:
            to = targets[name].to if name in targets else None
            if rule.when is RuleKind.OPERATION_ENDED or not isinstance(to, Mail):
                continue
            if all("{user}" in each for each in to.recipients):
                expected = "a target with an address without {user}: only operations have an owner"
                self._wrong(f"rules.{rule.name}.to", name, expected)

    def _texts(self, place: str, value: Map, key: str, fits: Callable[[str], bool], expected: str) -> list[str]:
        """Return the list of texts at a key, which must have at least one text. A single text counts as a list with this text."""
        given = value.get(key)
        texts: list[Any] = list(given.texts) if isinstance(given, Listing) else [value.texts.get(key)]
        if not texts or any(not isinstance(each, str) for each in texts):
            self._wrong(
                f"{place}.{key}", given, f"a list of {expected}" if not expected.startswith("one of") else expected
            )
            return []
        for nth, each in enumerate(texts):
            if not fits(each):
                self._wrong(f"{place}.{key}[{nth}]" if isinstance(given, Listing) else f"{place}.{key}", each, expected)
        return texts

    def _text(
        self, place: str, value: Map, key: str, expected: str, fits: Callable[[str], bool], default: str | None = None
    ) -> str:
        """Return the text at a key, with the values of environment variables in place of `${NAME}`."""
        if key not in value and default is not None:
            return default
        text = value.texts.get(key)
        if text is None:
            self._wrong(f"{place}.{key}", value.get(key), expected)
            return default or ""
        try:
            found = with_variables(text, f"{place}.{key}")
        except BadInput as error:
            self._problems.add(error)
            return default or ""
        if not fits(found):
            # The problem shows `text`, which has the names of environment variables, because their values may be secrets.
            self._wrong(f"{place}.{key}", text, expected)
        return found

    def _duration(self, place: str, value: Map, key: str, default_ms: int) -> int:
        if key not in value:
            return default_ms
        try:
            return parse_duration_ms(value.texts.get(key, ""), place=f"{place}.{key}")
        except BadInput:
            self._wrong(f"{place}.{key}", value[key], _DURATION)
            return default_ms

    def _refuse_unknown(self, place: str, value: Map, known: Iterable[str]) -> None:
        for key in value:
            if key not in known:
                self._problems.say(f"{place}.{key}".strip("."), "unknown key", hint(key, known), key)

    def _wrong(self, key: str, value: object, expected: str) -> None:
        self._problems.say(key, f"{shown(value)} cannot be used" if value is not None else "is missing", expected)


def _is_server(text: str) -> bool:
    found = _SERVER.match(text)
    return found is not None and 0 < int(found["port"]) < 65_536
