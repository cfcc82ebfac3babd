"""The groups of people, in one book: the groups in the bucket, and the groups that the host knows. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from headrace.ids import GroupName
from headrace.wire.groups import Group, GroupOfPerson, GroupSource


def groups_of(
    own: Mapping[GroupName, int], of_host: Sequence[GroupName], of_login: Sequence[GroupName] = ()
) -> tuple[GroupOfPerson, ...]:
    """Return the groups of a person, the primary group first.

    `own` has the groups in the bucket, each with the time at which the person was added. `of_host` has the groups of the host, the person's
    primary group there first. The groups of the host come first in the result, then those of `of_login`, the groups in the credentials with
    which the person is connected. The other groups follow, in the order in which the person was added to them.
    """
    from_bucket = sorted(own, key=lambda name: (own[name], name))
    sources = dict.fromkeys(of_host, GroupSource.HOST)
    for source, names in ((GroupSource.LOGIN, of_login), (GroupSource.HEADRACE, from_bucket)):
        sources.update((name, source) for name in names if name not in sources)
    return tuple(GroupOfPerson(name, source) for name, source in sources.items())


class GroupBook:
    """All groups in the bucket, and the groups that the host knows for the people who were looked up.

    The groups are not in the log: the bucket is read at each start.
    """

    def __init__(self) -> None:
        self.by_name: dict[GroupName, Group] = {}
        #: Groups in the bucket by member, each with the time at which the member was added.
        self._own: defaultdict[str, dict[GroupName, int]] = defaultdict(dict)
        self._of_host: dict[str, tuple[GroupName, ...]] = {}
        self._of_login: dict[str, tuple[GroupName, ...]] = {}

    def of(self, user: str) -> tuple[GroupOfPerson, ...]:
        """Return the groups of a person, the primary group first."""
        return groups_of(self._own.get(user, {}), self._of_host.get(user, ()), self._of_login.get(user, ()))

    def count_of(self, user: str) -> int:
        """Return the number of groups in the bucket that the person is in."""
        return len(self._own.get(user, ()))

    def take(self, name: GroupName, group: Group | None) -> None:
        """Take a group as it is in the bucket now; None: it was deleted."""
        before = self.by_name.pop(name, None)
        for user in before.members if before is not None else ():
            del self._own[user][name]
            if not self._own[user]:
                del self._own[user]
        if group is not None:
            self.by_name[name] = group
            for user, added_at_ms in group.members.items():
                self._own[user][name] = added_at_ms

    def take_of_host(self, user: str, groups: Sequence[GroupName] | None) -> None:
        """Take the groups that the host knows for a person, the person's primary group on the host first; None: forget them."""
        if groups is None:
            self._of_host.pop(user, None)
        else:
            self._of_host[user] = tuple(groups)

    def take_of_login(self, user: str, groups: Sequence[GroupName] | None) -> None:
        """Take the groups in the credentials with which a person is connected; None: forget them."""
        if groups:
            self._of_login[user] = tuple(groups)
        else:
            self._of_login.pop(user, None)

    def check(self) -> Iterator[str]:
        """Yield what is wrong in the index of members."""
        own = {(user, name): at for name, group in self.by_name.items() for user, at in group.members.items()}
        indexed = {(user, name): at for user, names in self._own.items() for name, at in names.items()}
        if own != indexed:
            yield f"groups: the index of members differs from the groups: {sorted(own.items() ^ indexed.items())[:3]}"
