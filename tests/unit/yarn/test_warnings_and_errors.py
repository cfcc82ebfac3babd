"""Every difference is warned of with its place, and every file that cannot be used is refused with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.ids import PoolName
from headrace.pools import TREE_ATTRIBUTES, TreeOptions
from headrace.pools.new_tree import NEW_TREE_OPTIONS
from headrace.resources import Resources
from headrace.tree_file.problems import FileProblem, Problems, UnusableFile
from headrace_cli.yarn import elements
from headrace_cli.yarn.amounts import read_amounts
from headrace_cli.yarn.site_file import YarnSite, read_site
from headrace_cli.yarn.warnings import Warnings
from tests.support.yarn_files import in_force, translated, tree_of


def inside(text: str) -> str:
    return f"<allocations>\n{text}\n</allocations>"


def refused(text: str | bytes) -> list[FileProblem]:
    with pytest.raises(UnusableFile) as caught:
        translated(text)
    return caught.value.problems


WARNED = {
    "W01 an element of a queue": ("W01", "<queue name='a'><colour>red</colour></queue>", "root.a colour"),
    "W01 an element of the file": ("W01", "<colour>red</colour>", "colour"),
    "W01 an attribute": ("W01", "<queue name='a' colour='red'/>", "root"),
    "W01 a type": ("W01", "<queue name='a' type='child'/>", "root.a"),
    "W03": ("W03", "<queue name='a'><minResources>10%</minResources></queue>", "root.a minResources"),
    "W04": (
        "W04",
        "<queue name='a'><minResources>9 mb, 9 vcores</minResources><maxResources>5 mb, 9 vcores</maxResources></queue>",
        "root.a minResources",
    ),
    "W05 a parent without any": (
        "W05",
        "<queue name='a'><queue name='b'><minResources>9 mb, 9 vcores</minResources></queue></queue>",
        "root.a minResources",
    ),
    "W07 a class": (
        "W07",
        "<queue name='a'><schedulingPolicy>org.x.Y</schedulingPolicy></queue>",
        "root.a schedulingPolicy",
    ),
    "W07 drf below fair": (
        "W07",
        "<queue name='a'><schedulingPolicy>drf</schedulingPolicy></queue>",
        "root.a schedulingPolicy",
    ),
    "W07 fifo on a parent": (
        "W07",
        "<queue name='a'><schedulingPolicy>fifo</schedulingPolicy><queue name='b'/></queue>",
        "root.a schedulingPolicy",
    ),
    "W08 nearly nothing": ("W08", "<queue name='a'><weight>1e-30</weight></queue>", "root.a weight"),
    "W09": ("W09", "<queue name='a'><maxAMShare>-1</maxAMShare></queue>", "root.a maxAMShare"),
    "W11": (
        "W11",
        "<queue name='a'><aclListReservations>*</aclListReservations></queue>",
        "root.a aclListReservations",
    ),
    "W13 no pools of users": ("W13", "<userMaxAppsDefault>3</userMaxAppsDefault>", "userMaxAppsDefault"),
    "W14": (
        "W14",
        "<queue name='a' type='parent'><maxChildResources>1 mb, 1 vcores</maxChildResources></queue>",
        "root.a maxChildResources",
    ),
    "W15 no name of a group": (
        "W15",
        "<queue name='root'><aclSubmitApps>ann all@devs</aclSubmitApps></queue>",
        "root aclSubmitApps",
    ),
    "W17": (
        "W17",
        "<queue name='a'><fairSharePreemptionThreshold>1.5</fairSharePreemptionThreshold></queue>",
        "root.a fairSharePreemptionThreshold",
    ),
    "W18 the old one last": (
        "W18",
        "<defaultFairSharePreemptionTimeout>5</defaultFairSharePreemptionTimeout>"
        "<fairSharePreemptionTimeout>6</fairSharePreemptionTimeout>",
        "fairSharePreemptionTimeout",
    ),
    "W18 the old one first": (
        "W18",
        "<fairSharePreemptionTimeout>6</fairSharePreemptionTimeout>"
        "<defaultFairSharePreemptionTimeout>5</defaultFairSharePreemptionTimeout>",
        "defaultFairSharePreemptionTimeout",
    ),
    "W19": (
        "W19",
        "<queue name='a'><allowPreemptionFrom>false</allowPreemptionFrom>"
        "<queue name='b'><allowPreemptionFrom>true</allowPreemptionFrom></queue></queue>",
        "root.a.b allowPreemptionFrom",
    ),
    "W23": ("W23", "<queue name='a'/><queue name='a'><weight>2</weight></queue>", "root.a"),
    "W24 no applications": (
        "W24",
        "<queue name='a'><maxRunningApps>0</maxRunningApps></queue>",
        "root.a maxRunningApps",
    ),
    "W25 a limit of the root": (
        "W25",
        "<queue name='root'><maxResources>1 mb, 1 vcores</maxResources></queue>",
        "root maxResources",
    ),
    "W26": ("W26", "<queue name='a'><queue name='x'/></queue><queue name='x'/>", "root.a.x"),
}


@pytest.mark.parametrize("name", WARNED)
def test_a_difference_is_warned_of_with_its_line_and_place(name: str) -> None:
    code, text, place = WARNED[name]
    found, warnings = translated(inside(text))
    tree_of(found)

    assert (code, 2, place) in [(each.code, each.line, each.place) for each in warnings.found]
    assert all(each.words for each in warnings.found)


REFUSED = {
    "another top": ("<configuration>\n</configuration>", 1, "<allocations>"),
    "no XML": ("<allocations>\n<queue>\n</allocations>", 3, "<allocations>"),
    "nothing": ("", 1, "<allocations>"),
    "a document type": ("<!DOCTYPE allocations>\n<allocations/>", 1, "elements, attributes and text"),
    "an entity": (
        "<!DOCTYPE a [<!ENTITY b 'x'>]>\n<allocations>&b;</allocations>",
        1,
        "elements, attributes and text",
    ),
    "a file of the host": (
        "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/hostname'>]>\n<allocations>&b;</allocations>",
        1,
        "elements, attributes and text",
    ),
    "an encoding": ("<?xml version='1.0' encoding='klingon'?><allocations/>", 1, "<allocations>"),
    "a period": (inside("<queue name='a.b'/>"), 2, "a name without periods"),
    "no name": (inside("<queue/>"), 2, "1 to 100 characters"),
    "beside root": (inside("<queue name='root'/>\n<queue name='a'/>"), 3, "root as the only top queue"),
    "fifo for all": (inside("<defaultQueueSchedulingPolicy>fifo</defaultQueueSchedulingPolicy>"), 2, "fair or drf"),
    "a reservation on a parent": (
        inside("<queue name='a'><queue name='b'/>\n<reservation/></queue>"),
        3,
        "a queue without child queues",
    ),
    "an empty value": (inside("<queue name='a'>\n<weight/></queue>"), 3, "a value"),
    "a weight below 0": (inside("<queue name='a'><weight>-1</weight></queue>"), 2, "a number from 0"),
    "a weight that is none": (inside("<queue name='a'><weight>nan</weight></queue>"), 2, "a number"),
    "a count": (inside("<queue name='a'><maxRunningApps>2.5</maxRunningApps></queue>"), 2, "a whole number"),
    "a count of many digits": (
        inside(f"<queue name='a'><maxRunningApps>{'0' * 10}1500000000000</maxRunningApps></queue>"),
        2,
        "a whole number from 0 to",
    ),
    "seconds": (inside("<defaultMinSharePreemptionTimeout>5s</defaultMinSharePreemptionTimeout>"), 2, "seconds"),
    "one of two": (inside("<queue name='a'><minResources>5 mb</minResources></queue>"), 2, "X mb, Y vcores"),
    "negative": (
        inside("<queue name='a'><maxResources>5 mb, -2 vcores</maxResources></queue>"),
        2,
        "no negative numbers",
    ),
    "an unknown resource": (inside("<queue name='a'><maxResources>disk=5</maxResources></queue>"), 2, "memory-mb"),
    "a rule": (
        inside("<queuePlacementPolicy><rule name='best'/><rule name='reject'/></queuePlacementPolicy>"),
        2,
        "one of",
    ),
    "behind the end": (
        inside("<queuePlacementPolicy><rule name='reject'/>\n<rule name='default'/></queuePlacementPolicy>"),
        3,
        "a higher position",
    ),
    "no end": (inside("<queuePlacementPolicy><rule name='specified'/></queuePlacementPolicy>"), 2, "as the last rule"),
    "a rule inside": (
        inside(
            "<queuePlacementPolicy><rule name='nestedUserQueue'><rule name='best'/></rule>\n<rule name='reject'/></queuePlacementPolicy>"
        ),
        2,
        "one of",
    ),
    "the root as a default": (
        inside("<queuePlacementPolicy>\n<rule name='default' queue='root'/></queuePlacementPolicy>"),
        3,
        "a queue below it, such as root.default, or the rule reject",
    ),
    "no rule": (inside("<queuePlacementPolicy/>"), 1, "default with create, or reject, as the last rule"),
    "nothing nested": (
        inside("<queuePlacementPolicy><rule name='nestedUserQueue'/><rule name='reject'/></queuePlacementPolicy>"),
        2,
        "one rule inside",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(name: str) -> None:
    text, line, expected = REFUSED[name]
    (problem,) = refused(text)

    assert problem.line == line
    assert expected in problem.expected


@pytest.mark.parametrize(
    ("text", "mib", "cores"),
    [
        ("  5120.3 mb, 2.35 vcores ", 5120, 2),
        ("2vcores,5120MB", 5120, 2),
        ("5120. mb 2. vcores", 5120, 2),
        (" vcores = 2 , memory-mb = 5120 ", 5120, 2),
        ("50%", 5120, 2),
        ("50.%memory,100%cpu", 5120, 4),
        ("memory-mb=40%,vcores=75%", 4096, 3),
        ("memory-mb=5120", 5120, None),
    ],
)
def test_amounts_are_read_in_each_spelling(text: str, mib: int, cores: int | None) -> None:
    found = read_amounts(text, "here").of(Resources(memory=10240 * 2**20, cpu=400))

    assert found == {"memory": mib * 2**20} | ({} if cores is None else {"cpu": cores * 100})


@pytest.mark.parametrize(
    "text",
    [
        "1024",
        "1024mb",
        "95%, 50% memory",
        "95A% cpu, 50% memory",
        "50% cpu, 1024 mb",
        "10% memory, -10% cpu",
        "memory-mb=-5120,vcores=2",
        "vcores=75%,memory-mb=-40%",
        "vcores=75%,memory-mb=40",
        "memory-mb=1,memory-mb=2",
    ],
)
def test_amounts_of_no_spelling_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_amounts(text, "here")


def test_all_that_is_wrong_is_told_at_once() -> None:
    text = inside("<queue name='a'>\n<weight>x</weight>\n<maxRunningApps/>\n</queue>\n<queue name=''/>")

    assert [problem.line for problem in refused(text)] == [3, 4, 6]
    assert refused(text)[0].text("f.xml") == "f.xml:3: root.a weight: x cannot be used; expected a number"


def test_what_is_nested_deep_or_has_too_many_elements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "<queue name='a'>" * elements.MOST_NESTED
    assert refused(inside(deep))[0].wrong == "nested too deep"
    monkeypatch.setattr(elements, "MOST_ELEMENTS", 3)
    assert refused(inside("<queue/>" * 3))[0].wrong == "too many elements"


def test_the_later_values_of_a_queue_that_stands_twice_win_one_by_one() -> None:
    text = inside(
        "<queue name='a'><weight>2</weight><maxRunningApps>7</maxRunningApps></queue><queue name='a'><weight>3</weight></queue>"
    )
    tree = tree_of(translated(text)[0])
    settings = tree.settings(PoolName("a"))

    assert (settings.weight, settings.max_running_operation_count) == (3, 7)


def test_a_limit_below_the_minimum_is_raised_to_it_resource_by_resource() -> None:
    text = "<minResources>9 mb, 1 vcores</minResources><maxResources>5 mb, 7 vcores</maxResources>"
    settings = tree_of(translated(inside(f"<queue name='a'>{text}</queue>"))[0]).settings(PoolName("a"))

    assert settings.resource_limits.named() == {"cpu": 700, "memory": 9 * 2**20}


def test_what_a_minimum_does_not_name_is_none_of_it() -> None:
    queue = "<queue name='a'><schedulingPolicy>drf</schedulingPolicy><minResources>{}</minResources></queue>"
    default = "<defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>"
    gpus, none = (translated(inside(default + queue.format(text)))[0] for text in ("gpu=2", "0 mb, 0 vcores"))

    guarantee = tree_of(gpus).settings(PoolName("a")).strong_guarantee_resources
    assert guarantee.named() == {"cpu": 0, "gpu": 2, "memory": 0}
    assert tree_of(none).settings(PoolName("a")).strong_guarantee_resources.named() == {}


@pytest.mark.parametrize(("kind", "is_hub"), [("", False), (" type='parent'", True)])
def test_queues_of_users_come_below_a_parent_only(kind: str, is_hub: bool) -> None:
    nested = "<rule name='nestedUserQueue' create='false'><rule name='default' queue='hub'/></rule>"
    rules = f"<queuePlacementPolicy>{nested}<rule name='default' queue='root.last'/></queuePlacementPolicy>"
    tree = tree_of(translated(inside(f"<queue name='hub'{kind}/><queue name='last'/>{rules}"))[0])

    assert tree.options.placement_rules == ("nested_user existing default hub", "default last")
    assert [name for name in tree.pools if tree.is_hub(PoolName(name))] == (["hub"] if is_hub else [])


@pytest.mark.parametrize(
    ("user_queues", "undeclared", "rules"),
    [
        (True, True, ("specified", "user")),
        (False, True, ("specified", "default")),
        (True, False, ("specified existing", "user existing", "default")),
        (False, False, ("specified existing", "default")),
    ],
)
def test_without_rules_those_of_the_site_are_in_force(
    user_queues: bool, undeclared: bool, rules: tuple[str, ...]
) -> None:
    found, _ = translated(inside(""), YarnSite(user_queues=user_queues, undeclared=undeclared))

    assert tree_of(found).options.placement_rules == rules


def test_a_rule_names_the_pool_of_its_queue_and_a_parent_of_users_need_not_be_declared() -> None:
    queues = "<queue name='a'><queue name='x'/></queue><queue name='x'/>"
    nested = "<rule name='nestedUserQueue'><rule name='default'/></rule>"
    rules = f"<queuePlacementPolicy>{nested}<rule name='default' queue='a.x'/></queuePlacementPolicy>"
    tree = tree_of(translated(inside(queues + rules))[0])

    assert tree.options.placement_rules == ("nested_user default", "default a-x")
    assert tree.is_hub(PoolName("default"))


def test_what_holds_far_above_a_queue_is_known_there() -> None:
    fifo = "<queue name='c'><schedulingPolicy>fifo</schedulingPolicy><allowPreemptionFrom>true</allowPreemptionFrom></queue>"
    above = "<fairSharePreemptionTimeout>5</fairSharePreemptionTimeout><allowPreemptionFrom>false</allowPreemptionFrom>"
    found, warnings = translated(inside(f"<queue name='a'>{above}<queue name='b'>{fifo}</queue></queue>"))

    told = {(each.code, each.place) for each in warnings.found}
    assert {("W19", "root.a.b.c allowPreemptionFrom"), ("W21", "root.a.b.c")} <= told
    assert in_force(tree_of(found), "c").preemption == "off"
    _, warnings = translated(inside(f"<queue name='a'><queue name='b'>{fifo}</queue></queue>"))
    assert not {"W19", "W21"} & {each.code for each in warnings.found}


def test_queues_of_one_name_become_pools_of_several() -> None:
    text = inside(
        "<queue name='a'><queue name='x'/></queue><queue name='b'><queue name='x'/></queue><queue name='b-x'/>"
    )

    tree = tree_of(translated(text)[0])

    assert set(tree.pools) == {"a", "a-x", "b", "b-x-2", "b-x", "default"}
    assert tree.path(PoolName("b-x-2")) == "/b/b-x-2"


@pytest.mark.parametrize("zeros", [20, 5_000])
def test_zeros_before_a_number_change_nothing(zeros: int) -> None:
    text = inside(
        f"<defaultMinSharePreemptionTimeout>{'0' * zeros}300</defaultMinSharePreemptionTimeout>"
        f"<queue name='a'><maxRunningApps>{'0' * zeros}7</maxRunningApps></queue>"
    )
    period = f"<property><name>yarn.scheduler.fair.waitTimeBeforeKill</name><value>{'0' * zeros}15</value></property>"

    tree = tree_of(translated(text)[0])
    site = read_site(f"<configuration>{period}</configuration>".encode(), Problems("s.xml"), Warnings("s.xml"))

    assert tree.settings(PoolName("a")).max_running_operation_count == 7
    assert tree.options.min_share_preemption_timeout == 300_000
    assert site.options["yarn/wait_before_kill"] == 15


SITE = """<?xml version="1.0"?>
<configuration>
<property><name>yarn.scheduler.fair.preemption</name><value>{preemption}</value></property>
<property><name>yarn.scheduler.fair.waitTimeBeforeKill</name><value>{wait}</value></property>
<property><name>yarn.scheduler.fair.sizebasedweight</name><value>true</value></property>
<property><name>yarn.nodemanager.resource.memory-mb</name><value>8</value></property>
<property><name>yarn.scheduler.fair.update-interval-ms</name><value>700</value></property>
<property><name>yarn.acl.enable</name><value>true</value></property>
</configuration>"""


def site(preemption: str = "true", wait: str = "20000") -> tuple[YarnSite, list[tuple[str, int]]]:
    warnings = Warnings("site.xml")
    read = read_site(SITE.format(preemption=preemption, wait=wait).encode(), Problems("site.xml"), warnings)
    return read, [(each.code, each.line) for each in warnings.found]


@pytest.mark.parametrize(("said", "switch"), [("true", "on"), ("false", "off")])
def test_the_site_says_whether_there_is_preemption_and_what_has_no_counterpart_is_dropped(
    said: str, switch: str
) -> None:
    read, warned = site(said)
    text = inside("<queue name='a'><fairSharePreemptionTimeout>5</fairSharePreemptionTimeout></queue>")
    found, warnings = translated(text, read)
    options = TREE_ATTRIBUTES.changed(TreeOptions(), found.options).value

    assert warned == [("W25", 5)]
    assert read.acls is True
    assert "W16" not in {each.code for each in warnings.found}
    assert in_force(tree_of(found), "a").preemption == switch
    assert (options.yarn.enabled, options.yarn.wait_before_kill) == (said == "true", 20_000)
    assert options.preemption_policy == ("yarn" if said == "true" else "ytsaurus")
    assert options.fair_share_update_period == 700


@pytest.mark.parametrize(
    ("names", "policy"),
    [
        (["preemptionInterval"], "yarn_legacy"),
        (["preemptionInterval", "waitTimeBeforeNextStarvationCheck"], "yarn"),
        (["waitTimeBeforeNextStarvationCheck"], "yarn"),
        ([], "yarn"),
    ],
)
def test_the_policy_is_that_of_the_engine_whose_properties_the_site_has(names: list[str], policy: str) -> None:
    lines = "".join(
        f"<property><name>yarn.scheduler.fair.{name}</name><value>{value}</value></property>"
        for name, value in (("preemption", "true"), *((name, "5000") for name in names))
    )
    site = read_site(f"<configuration>{lines}</configuration>".encode(), Problems("s.xml"), Warnings("s.xml"))

    assert translated(inside(""), site)[0].options["preemption_policy"] == policy


def test_memory_alone_is_divided_from_each_queue_of_policy_fair_on() -> None:
    fair = "<schedulingPolicy>fair</schedulingPolicy>"
    queues = (
        f"<queue name='a'>{fair}<queue name='b'>{fair}<queue name='c'><schedulingPolicy>fifo</schedulingPolicy></queue></queue>"
        "</queue><queue name='d'/>"
    )
    default = "<defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>"
    found, _ = translated(inside(default + queues))
    tree = tree_of(found)

    assert [name for name in tree.pools if tree.settings(PoolName(name)).yarn_memory_only] == ["a"]
    assert {name: in_force(tree, name).yarn_memory_only for name in ("a", "b", "c", "d")} == {
        **dict.fromkeys("abc", True),
        "d": False,
    }
    whole, _ = translated(inside(queues))
    assert whole.options["yarn/memory_only"] is True
    assert not any("yarn_memory_only" in each.attributes for each in whole.pools)


@pytest.mark.parametrize("enabled", [True, False])
def test_lists_that_yarn_does_not_look_at_are_warned_of(enabled: bool) -> None:
    text = inside("<queue name='root'><aclSubmitApps>ann</aclSubmitApps></queue>")
    _, warnings = translated(text, YarnSite(acls=enabled))

    assert (("W15", "access lists") in [(each.code, each.place) for each in warnings.found]) is not enabled


def test_nodes_on_which_jobs_fail_are_held_back_as_before_the_import() -> None:
    found, _ = translated(inside("<queue name='a'/>"))
    before = TREE_ATTRIBUTES.changed(TreeOptions(), NEW_TREE_OPTIONS).value
    after = TREE_ATTRIBUTES.changed(before, found.options).value

    assert before.hold_back_failing_nodes
    assert after.hold_back_failing_nodes
    assert after.node_reservation_time == 0


def test_what_an_earlier_file_said_of_the_tree_does_not_stay() -> None:
    text = inside(
        "<queue name='a'><minResources>9 mb, 1 vcores</minResources></queue><queueMaxAppsDefault>5</queueMaxAppsDefault>"
    )
    first, _ = translated(text, site()[0])
    nothing = read_site(b"<configuration/>", Problems("site.xml"), Warnings("site.xml"))
    later, _ = translated(inside("<queue name='a'/>"), nothing)
    before = TREE_ATTRIBUTES.changed(TreeOptions(), first.options).value
    after = TREE_ATTRIBUTES.changed(before, later.options).value

    assert (before.main_resource, before.max_running_operation_count, before.yarn.wait_before_kill) == (
        "memory",
        5,
        20_000,
    )
    assert (after.main_resource, after.max_running_operation_count, after.yarn.wait_before_kill) == (
        "cpu",
        50_000,
        15_000,
    )


def test_preemption_without_a_finite_timeout_is_warned_of() -> None:
    _, warnings = translated(inside("<queue name='a'/>"), site()[0])

    assert "W16" in {each.code for each in warnings.found}


@pytest.mark.parametrize(("preemption", "wait", "line"), [("yes", "1", 3), ("true", "soon", 4)])
def test_a_site_that_cannot_be_used_is_refused_with_its_line(preemption: str, wait: str, line: int) -> None:
    with pytest.raises(UnusableFile) as caught:
        site(preemption, wait)

    assert [problem.line for problem in caught.value.problems] == [line]


AMOUNTS = st.sampled_from(
    [
        "1024 mb, 2 vcores",
        "0 mb, 0 vcores",
        "50%",
        "10% memory, 20% cpu",
        "memory-mb=9, vcores=3",
        "gpu=2",
        "vcores=5%",
        "7 mb",
        "4096 mb, 4 vcores, 2 gcores",
        "1,024 mb, 0 vcores",
    ]
)
VALUES = {
    "weight": st.sampled_from(["0", "1", "2.5", "1e-20", "-1", "67108864", "1.5f", "2D"]),
    "minResources": AMOUNTS,
    "maxResources": AMOUNTS,
    "maxChildResources": AMOUNTS,
    "maxRunningApps": st.sampled_from(["0", "1", "2147483647", "x"]),
    "schedulingPolicy": st.sampled_from(["fair", "fifo", "drf", "DRF", "org.x.Y"]),
    "fairSharePreemptionTimeout": st.sampled_from(["0", "5", "9223372036854775807"]),
    "minSharePreemptionTimeout": st.sampled_from(["0", "5", "9223372036854775807"]),
    "fairSharePreemptionThreshold": st.sampled_from(["-1", "0.5", "7"]),
    "allowPreemptionFrom": st.sampled_from(["true", "false", "maybe"]),
    "aclSubmitApps": st.sampled_from([" ", "*", "ann,an.na,Ann my_devs", " devs", "__"]),
    "aclAdministerApps": st.sampled_from([" ", "*", "ann,an.na,Ann my_devs", " devs", "__"]),
}
VALUE = st.sampled_from(sorted(VALUES)).flatmap(lambda key: VALUES[key].map(lambda value: f"<{key}>{value}</{key}>"))
QUEUE = st.recursive(
    st.lists(VALUE, max_size=4).map("".join),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(["a", "b", "x@y", "x y", "@"]), st.sampled_from(["", " type='parent'"]), inner),
        max_size=3,
    ).map(lambda queues: "".join(f"<queue name='{name}'{kind}>{text}</queue>" for name, kind, text in queues)),
    max_leaves=8,
)


@given(QUEUE, st.booleans(), st.sampled_from(["", "<defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>"]))
def test_whatever_a_file_holds_is_refused_or_becomes_a_tree_that_keeps_all_rules(
    queues: str, under_root: bool, default: str
) -> None:
    text = f"<queue name='root'>{queues}</queue>" if under_root else queues
    try:
        found, _ = translated(inside(text + default))
    except UnusableFile as error:
        told = error.problems
    else:
        told = []
        tree_of(found)
    assert all(problem.line and problem.expected for problem in told)
