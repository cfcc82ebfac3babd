"""Rights on pools from lists of access. YARN lets in whoever a list on the way up names, and so do pools. Groups are not known."""

from __future__ import annotations

from typing import Final

from headrace_cli.yarn.allocation_file import Queue, Users
from headrace_cli.yarn.warnings import Warnings

#: Nobody's name. Where a list names somebody, all others are shut out.
_NOBODY: Final = "-"
_EVERYBODY: Final = Users(("*",), ())
_SUBMIT: Final = "aclSubmitApps"
#: Rights here by lists there.
RIGHTS: Final = {_SUBMIT: "use", "aclAdministerApps": "manage"}


def access_of_root(root: Queue, warnings: Warnings) -> dict[str, object]:
    """The options of the tree. An open root lets everybody in everywhere, and a closed one those whom lists below it name."""
    for key in RIGHTS:
        _warn_of_groups(root, key, warnings)
    lists: dict[str, Users] = {key: root.get(key, _EVERYBODY) for key in RIGHTS}
    submit, administer = lists.values()
    return {
        "access/use": None if submit.is_everybody else _names(submit) or [_NOBODY],
        "access/manage": None if administer.is_everybody else _names(administer) or None,
    }


def access_of_pool(queue: Queue, root: Queue, warnings: Warnings) -> dict[str, object]:
    """The attributes of a pool, with a warning for each list that says other than in YARN."""
    attributes: dict[str, object] = {}
    for key, right in RIGHTS.items():
        if key not in queue.values:
            continue
        users: Users = queue.values[key].value
        line, place = queue.values[key].line, f"{queue.path} {key}"
        is_open = root.get(key, _EVERYBODY).is_everybody
        if is_open and key == _SUBMIT:
            words = "has no effect in YARN while root lets everybody in, and is dropped: everybody may run operations"
            warnings.say("W15", line, place, words)
            continue
        if is_open:
            words = "has no effect in YARN while root lets everybody; here it holds, and others may not"
            warnings.say("W15", line, place, words)
        _warn_of_groups(queue, key, warnings)
        if names := _names(users):
            attributes[f"access/{right}"] = names
    return attributes


def _warn_of_groups(queue: Queue, key: str, warnings: Warnings) -> None:
    users: Users = queue.get(key, _EVERYBODY)
    if users.groups and not users.is_everybody:
        words = f"no groups are known here: kept as names of users: {', '.join(users.groups)}"
        warnings.say("W15", queue.values[key].line, f"{queue.path} {key}", words)


def _names(users: Users) -> list[str]:
    return ["*"] if users.is_everybody else list(dict.fromkeys((*users.users, *users.groups)))
