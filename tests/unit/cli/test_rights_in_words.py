"""What `pool explain` says about the rights of the caller."""

from __future__ import annotations

from headrace.ids import ROOT_POOL, GroupName, PoolName, TreeName
from headrace.wire.groups import GroupOfPerson, GroupSource
from headrace.wire.rights import RightGrant, RightLacked, Rights, RightsOnPool
from headrace_cli.show.rights import rights_on_pool

POOL = PoolName("lab")
RESEARCH = GroupOfPerson(GroupName("research"), GroupSource.HEADRACE)


def lines(on_pool: RightsOnPool, *groups: GroupOfPerson, administrator: bool = False) -> list[str]:
    return list(rights_on_pool(Rights("ada", administrator, [on_pool], groups=[*groups])))


def test_each_right_has_its_reason_or_the_people_who_have_it() -> None:
    grants = [
        RightGrant("use", POOL, "use", "group:research"),
        RightGrant("manage", ROOT_POOL, "administer", "ada"),
    ]
    lacked = [RightLacked("write", ["ben", "group:leads"]), RightLacked("administer", [])]

    assert lines(RightsOnPool(TreeName("default"), POOL, ["use", "manage"], grants, lacked), RESEARCH) == [
        "ada, in research:",
        "  may use: group:research in access/use of pool lab",
        "  may manage: ada in access/administer of the tree",
        "  may not write: held by ben, group:leads",
        "  may not administer: held by nobody",
    ]


def test_rights_of_everybody_and_of_administrators_need_no_list() -> None:
    open_to_all = RightsOnPool(TreeName("default"), POOL, ["use"], [RightGrant("use", POOL, "use", "")])

    assert lines(open_to_all) == ["ada, in no group:", "  may use: no list names anybody for it"]
    assert lines(open_to_all, administrator=True) == ["ada, in no group: may do everything, as an administrator"]
