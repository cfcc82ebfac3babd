"""Rights on pools from YARN's access lists.

YARN admits every user that an access list of the queue, or of a queue above it, names directly or by a group. The access lists of pools
work in the same way. In YARN, administrators of a queue may also run applications in it. `access/manage` does not include that right, so
the administrators are added to `access/use` as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.errors import BadInput
from headrace.ids import group_name, user_name_from_login
from headrace.pools.pool_config import EVERYBODY, GROUP, NOBODY
from headrace.tree_file.problems import shown
from headrace_cli.yarn.allocation_file import Queue, Users
from headrace_cli.yarn.warnings import Warnings

_OPEN: Final = Users((EVERYBODY,), ())
_SUBMIT: Final = "aclSubmitApps"
#: Rights on pools by the names of YARN's lists.
RIGHTS: Final = {_SUBMIT: "use", "aclAdministerApps": "manage"}


def access_of_root(root: Queue, warnings: Warnings) -> dict[str, object]:
    """Return the access options of the tree. If the root's lists admit everybody, every user may use every pool. Otherwise a pool admits
    only the users on its own lists and on the lists above it.

    If the root has no list of administrators, or names everybody there, YARN lets everybody run applications everywhere. In these cases
    Headrace does not do so, and follows only the lists of `aclSubmitApps`. If the root has no list of administrators, Headrace lets nobody
    end applications of other users.
    """
    names = {key: _names(root, key, warnings) for key in RIGHTS}
    submit, administer = names.values()
    runners = submit if administer == [EVERYBODY] else _merged(submit, administer)
    return {
        "access/use": None if submit == [EVERYBODY] else runners or [NOBODY],
        "access/manage": administer or None if "aclAdministerApps" in root.values else None,
    }


def access_of_pool(queue: Queue, root: Queue, warnings: Warnings) -> Mapping[str, list[str]]:
    """Return the access attributes of a pool, with a warning for each list whose effect differs from YARN."""
    attributes: dict[str, list[str]] = {}
    for key, right in RIGHTS.items():
        if key not in queue.values:
            continue
        users: Users = queue.values[key].value
        line, place = queue.values[key].line, f"{queue.path} {key}"
        is_open = root.get(key, _OPEN).is_everybody
        if is_open and (key == _SUBMIT or key in root.values):
            may = "run operations" if key == _SUBMIT else "change and end operations of others"
            words = f"has no effect in YARN because root admits everybody, and is dropped: everybody may {may}"
            if not users.is_everybody:
                warnings.say("W15", line, place, words)
            continue
        if is_open and not users.is_everybody:
            words = "has no effect in YARN because root admits everybody; here it takes effect, and other users may not"
            warnings.say("W15", line, place, words)
        if names := _names(queue, key, warnings):
            attributes[f"access/{right}"] = names
    if not root.get(_SUBMIT, _OPEN).is_everybody and "access/manage" in attributes:
        attributes["access/use"] = _merged(attributes.get("access/use", []), attributes["access/manage"])
    return attributes


def _merged(names: list[str], more: list[str]) -> list[str]:
    return list(dict.fromkeys([*names, *more]))


def _names(queue: Queue, key: str, warnings: Warnings) -> list[str]:
    """Return the users and groups in a list as names of this system, with a warning for changed and dropped names."""
    users: Users = queue.get(key, _OPEN)
    if users.is_everybody:
        return [EVERYBODY]
    names: dict[str, None] = {}
    others, nobody, no_groups = [], [], []
    for name in users.users:
        try:
            names[made := user_name_from_login(name)] = None
        except BadInput:
            nobody.append(shown(name))
            continue
        others += [f"{shown(name)} is {made}"] if made != name else []
    for name in users.groups:
        try:
            names[GROUP + group_name(name)] = None
        except BadInput:
            no_groups.append(shown(name))
    for listed, words in (
        (others, "names of users have only a-z, 0-9 and '-', as `headrace login` makes them"),
        (nobody, "these names are dropped, because they cannot be names of users here"),
        (no_groups, "these names are dropped, because they cannot be names of groups here"),
    ):
        if listed:
            warnings.say("W15", queue.values[key].line, f"{queue.path} {key}", f"{words}: {', '.join(listed)}")
    return list(names)
