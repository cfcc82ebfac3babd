"""Groups of people: who changes them, what they allow, and where they place operations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ids import ROOT_POOL, GroupName, PoolName, TreeName
from headrace.pools import EVERYBODY, Person
from headrace.wire import groups as wire_groups
from headrace.wire import operations as wire
from headrace.wire.groups import ChangeGroup, Group, GroupChange, GroupOfPerson, GroupSource
from headrace.wire.refusals import BadRequest, Exists, NotAllowed, NotFound, Refusal, WrongState
from headrace.wire.rights import GetRights, RightGrant, RightLacked, Rights
from headrace_admission import disclosure
from headrace_admission.decisions.group_changes import change, find, listed
from headrace_admission.state.groups import GroupBook, groups_of
from headrace_admission.state.rules import GlobalRules
from tests.unit.admission.desk import TREE, Desk

CLOSED = GlobalRules(administrators=frozenset({"root"}))
ROOT = Person("root", administrator=True)
RESEARCH, GUESTS = GroupName("research"), GroupName("guests")


def desk_of(pools: dict[str, object], members: dict[str, list[str]], **options: object) -> Desk:
    """A desk with groups, whose members were added in this order."""
    desk = Desk(pools, everywhere=CLOSED, **options)
    for at, (name, people) in enumerate(members.items()):
        desk.state.configuration.groups.take(GroupName(name), Group(GroupName(name), dict.fromkeys(people, at)))
    return desk


def book_of(**members: list[str]) -> GroupBook:
    book = GroupBook()
    for name, people in members.items():
        book.take(GroupName(name), Group(GroupName(name), dict.fromkeys(people, 1)))
    return book


def asked(book: GroupBook, name: str, what: GroupChange, *members: str, by: Person = ROOT) -> Group | Refusal:
    answer = change(book, ChangeGroup(name, what, [*members]), by, 7)
    if isinstance(answer, Group):
        book.take(answer.name, None if what is GroupChange.DELETE else answer)
    return answer


def test_a_group_is_made_changed_and_deleted() -> None:
    book = GroupBook()

    assert asked(book, "research", GroupChange.CREATE, "ada") == Group(RESEARCH, {"ada": 7}, "root", 7)
    assert asked(book, "research", GroupChange.ADD, "ben", "ada") == Group(RESEARCH, {"ada": 7, "ben": 7}, "root", 7)
    assert book.of("ben") == (GroupOfPerson(RESEARCH, GroupSource.HEADRACE),)
    assert asked(book, "research", GroupChange.REMOVE, "ada") == Group(RESEARCH, {"ben": 7}, "root", 7)
    assert book.of("ada") == ()
    assert [each.members for each in listed(book).groups] == [1]
    assert asked(book, "research", GroupChange.DELETE) == Group(RESEARCH, {"ben": 7}, "root", 7)
    assert (book.of("ben"), book.by_name) == ((), {})


@pytest.mark.parametrize(
    ("name", "what", "members", "by", "refusal"),
    [
        ("research", GroupChange.ADD, ["eve"], Person("eve"), NotAllowed("eve", "change group research")),
        ("new", GroupChange.CREATE, [], Person("eve"), NotAllowed("eve", "change group new")),
        ("reserch", GroupChange.ADD, ["eve"], ROOT, NotFound("group", "reserch", near=["research"])),
        ("reserch", GroupChange.DELETE, [], ROOT, NotFound("group", "reserch", near=["research"])),
        ("research", GroupChange.REMOVE, ["ada", "bem"], ROOT, NotFound("member of group research", "bem", near=["ben"])),
        ("research", GroupChange.CREATE, [], ROOT, Exists("group", "research")),
    ],
)  # fmt: skip
def test_what_cannot_be_changed_is_refused(
    name: str, what: GroupChange, members: list[str], by: Person, refusal: Refusal
) -> None:
    book = book_of(research=["ada", "ben"])

    assert asked(book, name, what, *members, by=by) == refusal
    assert book.by_name[RESEARCH].members == {"ada": 1, "ben": 1}
    assert find(book, "reserch") == NotFound("group", "reserch", near=["research"])


@pytest.mark.parametrize("name", ["", "-a", "a b", "a..b", ".a", "a.", "a*", "group:a", "a" * 64, "é"])
def test_a_name_that_is_no_subject_is_refused(name: str) -> None:
    answer = asked(GroupBook(), name, GroupChange.CREATE)

    assert isinstance(answer, BadRequest)
    assert (answer.place, answer.value) == ("group", name)


@pytest.mark.parametrize("member", ["", EVERYBODY, "group:research", "Ada", "a" * 64])
def test_only_users_are_members(member: str) -> None:
    answer = asked(book_of(research=[]), "research", GroupChange.ADD, member)

    assert isinstance(answer, BadRequest)
    assert (answer.place, answer.value) == ("member", member)


def test_groups_members_and_groups_of_a_person_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_GROUPS", "MOST_MEMBERS", "MOST_GROUPS_OF_A_PERSON"):
        monkeypatch.setattr(f"headrace_admission.decisions.group_changes.{name}", 2)
        assert getattr(wire_groups, name) > 100
    book = book_of(one=["ada", "ben"], two=["ada"])

    assert isinstance(asked(book, "three", GroupChange.CREATE), WrongState)
    assert isinstance(asked(book, "one", GroupChange.ADD, "cleo"), BadRequest)
    asked(book, "one", GroupChange.REMOVE, "ben")
    book.take(GroupName("three"), Group(GroupName("three")))
    assert isinstance(asked(book, "three", GroupChange.ADD, "ada"), BadRequest)
    assert isinstance(asked(book, "two", GroupChange.ADD, "ada"), Group)


def test_groups_of_the_host_come_first_and_count_once() -> None:
    host, own = GroupSource.HOST, GroupSource.HEADRACE
    found = groups_of({GUESTS: 1, RESEARCH: 3, GroupName("zoo"): 2, GroupName("tea"): 3}, [GroupName("staff"), GUESTS])

    assert [(each.name, each.source) for each in found] == [
        ("staff", host),
        ("guests", host),
        ("zoo", own),
        ("research", own),
        ("tea", own),
    ]


@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]), st.none() | st.dictionaries(st.sampled_from("uvw"), st.integers(0, 9))
        )
    )
)
def test_the_index_of_members_follows_the_groups(changes: list[tuple[str, dict[str, int] | None]]) -> None:
    book = GroupBook()
    for name, members in changes:
        book.take(GroupName(name), None if members is None else Group(GroupName(name), members))

    assert [*book.check()] == []
    for user in "uvw":
        assert {each.name for each in book.of(user)} == {
            n for n, group in book.by_name.items() if user in group.members
        }


def test_a_group_in_a_list_admits_its_members_at_once_and_no_longer() -> None:
    desk = desk_of({"p": {"access": {"use": ["group:research"]}}}, {"research": ["boris"], "guests": ["anna"]})

    assert isinstance(desk.start("a", "p", user="boris"), wire.StartAnswer)
    refusal = desk.start("b", "p")
    assert refusal.text() == (
        "anna (in guests) may not run operations in pool p; this needs the right `use` on pool p, held by: group:research, root"
    )
    desk.state.configuration.groups.take(RESEARCH, Group(RESEARCH, {"anna": 1}))
    assert isinstance(desk.start("c", "p"), wire.StartAnswer)
    assert isinstance(desk.start("d", "p", user="boris"), NotAllowed)


def test_a_name_of_a_user_is_no_group_and_a_group_no_user() -> None:
    desk = desk_of(
        {"p": {"access": {"use": ["research"]}}, "q": {"access": {"use": ["group:anna"]}}}, {"research": ["anna"]}
    )

    assert isinstance(desk.start("a", "p"), NotAllowed)
    assert isinstance(desk.start("b", "q"), NotAllowed)


def test_a_move_needs_the_groups_of_the_owner() -> None:
    desk = desk_of({"p": {"access": {"use": ["group:research"]}}, "q": {}}, {"research": ["boris"]})
    desk.started("a", pool="q")

    assert isinstance(desk.update("a", "root", pool=PoolName("p")), NotAllowed)
    desk.state.configuration.groups.take_of_host("anna", [RESEARCH])
    assert desk.update("a", "root", pool=PoolName("p")).spec.pool == "p"


def test_an_ephemeral_pool_has_the_lists_of_its_parent_and_the_default_pool_of_a_group() -> None:
    desk = desk_of(
        {"labs": {"access": {"use": ["group:research"]}}, "hall": {}},
        {"guests": ["anna"], "research": ["anna", "boris"]},
        use_user_default_parent_pool_map=True,
        user_to_default_pool={"group:research": "labs", "cleo": "hall", "group:gone": "hall"},
        max_ephemeral_pools_per_user=9,
    )

    desk.started("a", pool="new")
    assert desk.state.books[TREE].parent(PoolName("new")) == "labs"
    assert isinstance(desk.start("b", "newer", user="cleo"), wire.StartAnswer)
    assert desk.state.books[TREE].parent(PoolName("newer")) == "hall"
    desk.state.configuration.groups.take(RESEARCH, None)
    assert isinstance(desk.start("c", "new"), NotAllowed)


def test_members_of_a_group_manage_and_administer() -> None:
    everywhere = GlobalRules(administrators=frozenset({"group:ops"}))
    desk = Desk({"p": {"access": {"manage": ["group:research"]}}}, everywhere=everywhere)
    desk.started("a", pool="p")
    desk.state.configuration.groups.take(RESEARCH, Group(RESEARCH, {"boris": 1}))

    assert desk.update("a", "boris", weight=2.0).spec.weight == 2.0
    assert isinstance(desk.update("a", "cleo", weight=3.0), NotAllowed)
    desk.state.configuration.groups.take_of_host("cleo", [GroupName("ops")])
    assert desk.update("a", "cleo", weight=3.0).spec.weight == 3.0


def test_rules_place_by_groups() -> None:
    rules = ["primary_group existing", "secondary_group", "reject"]
    members = {"none": ["boris"], "guests": ["anna"], "research": ["anna", "boris"]}
    desk = desk_of({"research": {}, "guests": {}}, members, placement_rules=rules)

    assert desk.start("a").pool == "guests"
    assert desk.start("b", user="boris").pool == "research"
    refusal = desk.start("c", user="cleo")
    assert "`primary_group existing` needs a group, but cleo is in no group" in refusal.text()
    desk.state.configuration.groups.take_of_host("anna", [RESEARCH])
    assert desk.start("d").pool == "research"


def test_rights_say_why() -> None:
    desk = desk_of(
        {"p": {"access": {"use": ["group:research"], "write": ["boris"]}}, "q": {"parent": "p"}}, {"research": ["anna"]}
    )
    rights = disclosure.rights_of(desk.state, GetRights(PoolName("q")), "anna")

    assert isinstance(rights, Rights)
    [on_pool] = rights.pools
    assert on_pool.grants == [RightGrant("use", PoolName("p"), "use", "group:research")]
    assert on_pool.lacked == [RightLacked("manage", []), RightLacked("write", ["boris"]), RightLacked("administer", [])]
    assert rights.groups == [GroupOfPerson(RESEARCH, GroupSource.HEADRACE)]
    assert disclosure.rights_of(desk.state, GetRights(PoolName("qq")), "anna") == NotFound("pool", "qq", near=["q"])
    desk.started("a", pool="new")
    of_new = disclosure.rights_of(desk.state, GetRights(PoolName("new")), "anna")
    assert isinstance(of_new, Rights)
    assert (of_new.pools[0].pool, of_new.pools[0].grants[0].entry) == ("new", "")
    of_root = disclosure.rights_of(desk.state, GetRights(ROOT_POOL), "root")
    assert isinstance(of_root, Rights)
    assert (of_root.administrator, of_root.pools[0].pool, of_root.pools[0].grants) == (True, ROOT_POOL, [])
    assert disclosure.rights_of(desk.state, GetRights(ROOT_POOL, TreeName("gone")), "anna") == NotFound("tree", "gone")
