"""A plain second implementation of the access lists of YARN's fair scheduler, from what Hadoop's classes do.

A list is `users groups`: names separated by commas, the groups after the first blank. `*` as any of the names admits everybody, a
list of a blank admits nobody. A queue admits whom its own list or the list of any queue above it admits. Without a list the root
admits everybody and every other queue nobody. An application may be submitted by whoever may submit to the queue or administer it.
"""

from __future__ import annotations

from collections.abc import Mapping

SUBMIT, ADMINISTER = "aclSubmitApps", "aclAdministerApps"
#: Lists by the path of the queue and the name of the list.
Lists = Mapping[tuple[str, str], str]


def list_admits(text: str, user: str, groups: list[str]) -> bool:
    parts = text.split(" ", 1)
    users = [each.strip() for each in parts[0].split(",")]
    of_groups = [each.strip() for each in parts[1].split(",")] if len(parts) > 1 else []
    if "*" in users or "*" in of_groups:
        return True
    return user in users or any(group in of_groups for group in groups)


def has_access(lists: Lists, path: str, acl: str, user: str, groups: list[str]) -> bool:
    while path:
        text = lists.get((path, acl), "*" if path == "root" else " ")
        if list_admits(text, user, groups):
            return True
        path = path.rpartition(".")[0]
    return False


def may_submit(lists: Lists, path: str, user: str, groups: list[str]) -> bool:
    return any(has_access(lists, path, acl, user, groups) for acl in (SUBMIT, ADMINISTER))
