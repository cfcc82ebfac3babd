"""Files of the kinds that people really have: whatever stands in them is right here, warned of with its line, or refused with it."""

from __future__ import annotations

import pytest

from headrace.errors import BadInput
from headrace.ids import PoolName
from headrace.pools import POOL_ATTRIBUTES, Defects, PoolConfig, PoolMode, PoolTree
from headrace.tree_file.problems import Problems, UnusableFile
from headrace_cli.yarn.amounts import java_number, read_amounts
from headrace_cli.yarn.site_file import read_site
from headrace_cli.yarn.warnings import Warned, Warnings
from tests.support.yarn_files import translated, tree_of

GIB = 2**30
POLICIES = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.policies"


def whole(*lines: str) -> str:
    """A file whose first line is that of its top element."""
    return "\n".join(("<allocations>", *lines, "</allocations>"))


def imported(*lines: str) -> tuple[PoolTree, list[Warned]]:
    found, warnings = translated(whole(*lines))
    return tree_of(found), warnings.found


def told(warned: list[Warned], *codes: str) -> list[tuple[str, int, str]]:
    """Codes, lines and places of the warnings, of some codes or of all."""
    return [(each.code, each.line, each.place) for each in warned if not codes or each.code in codes]


def refusal(*lines: str) -> str:
    with pytest.raises(UnusableFile) as caught:
        imported(*lines)
    (problem,) = caught.value.problems
    return problem.text("f.xml")


def test_a_share_of_masters_on_a_parent_is_dropped_with_a_warning() -> None:
    tree, warned = imported(
        "<queue name='plant'>",
        "<maxAMShare>0.1</maxAMShare><weight>2.0</weight>",
        "<queue name='mill'><maxAMShare>0.2</maxAMShare></queue>",
        "</queue>",
    )

    assert tree.settings(PoolName("plant")).weight == 2
    assert told(warned, "W09") == [("W09", 3, "root.plant maxAMShare"), ("W09", 4, "root.plant.mill maxAMShare")]
    assert [each.text().endswith("the newest YARN refuses such a file") for each in warned if each.code == "W09"] == [
        True,
        False,
    ]


def test_numbers_are_read_as_java_reads_them() -> None:
    tree, warned = imported(
        "<defaultFairSharePreemptionThreshold>0.6f</defaultFairSharePreemptionThreshold>",
        "<queue name='mill'><weight>1.5d</weight><maxAMShare>0.5f</maxAMShare></queue>",
    )
    data = (
        "<configuration><property><name>yarn.scheduler.fair.preemption.cluster-utilization-threshold</name>"
        "<value>0.8f</value></property></configuration>"
    )
    site = read_site(data.encode(), Problems("s.xml"), Warnings("s.xml"))

    assert tree.settings(PoolName("mill")).weight == 1.5
    assert tree.options.fair_share_starvation_tolerance == 0.6
    assert told(warned, "W09") == [("W09", 3, "root.mill maxAMShare")]
    assert site.options["yarn/cluster_utilization_threshold"] == 0.8


@pytest.mark.parametrize("text", ["1", "1.", ".5", "1e3", "1E-2F", "-1.0f", "+2D"])
def test_what_java_reads_is_a_number(text: str) -> None:
    assert java_number(text, "here") == float(text.rstrip("FfDd"))


@pytest.mark.parametrize(
    "text", ["", "f", "1_000", "1,5", "١", "nan", "Infinity", "0x1p3", "1ff", "1 000", "1e999", "e5"]
)
def test_what_java_does_not_read_or_is_not_finite_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        java_number(text, "here")


def test_of_what_stands_twice_the_later_is_used_with_both_lines_told() -> None:
    tree, warned = imported(
        "<queue name='mill'>",
        "<weight>2</weight>",
        "<maxResources>4096 mb, 4 vcores</maxResources>",
        "<maxResources>1024 mb, 1 vcores</maxResources>",
        "<weight>7</weight>",
        "<schedulingMode>drf</schedulingMode>",
        "<schedulingPolicy>fifo</schedulingPolicy>",
        "</queue>",
        "<user name='ann'><maxRunningApps>1</maxRunningApps></user>",
        "<user name='ann'><maxRunningApps>2</maxRunningApps></user>",
        "<queuePlacementPolicy><rule name='reject'/></queuePlacementPolicy>",
        "<queuePlacementPolicy><rule name='specified'/><rule name='default'/></queuePlacementPolicy>",
    )
    mill = tree.settings(PoolName("mill"))

    assert (mill.weight, mill.mode, mill.resource_limits.named()) == (7, PoolMode.FIFO, {"cpu": 100, "memory": GIB})
    assert tree.options.placement_rules == ("specified", "default")
    twice = [each for each in warned if each.code == "W23"]
    assert told(twice) == [
        ("W23", 5, "root.mill maxResources"),
        ("W23", 6, "root.mill weight"),
        ("W23", 8, "root.mill schedulingPolicy"),
        ("W23", 11, "user ann"),
        ("W23", 13, "queuePlacementPolicy"),
    ]
    assert [each.words.rpartition(" ")[2] for each in twice] == ["4", "3", "7", "10", "12"]


def test_a_property_of_the_site_that_stands_twice_is_told_of() -> None:
    name = "<name>yarn.scheduler.fair.preemption</name>"
    lines = [f"<property>{name}<value>{value}</value></property>" for value in ("false", "true")]
    warnings = Warnings("s.xml")
    site = read_site("\n".join(["<configuration>", *lines, "</configuration>"]).encode(), Problems("s.xml"), warnings)

    assert site.preemption is True
    assert told(warnings.found) == [("W23", 3, "yarn.scheduler.fair.preemption")]
    assert warnings.found[0].words.endswith("line 2")


def test_what_stands_beside_memory_and_cores_is_told_of() -> None:
    tree, warned = imported(
        "<defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>",
        "<queue name='mill'><minResources>2048 mb, 2 vcores, 1 gcores</minResources>",
        "<maxResources>4096 mb, 4 vcores, 2 gcores</maxResources></queue>",
        "<queue name='kiln'><maxResources>1,024 mb, 2 vcores</maxResources></queue>",
    )

    assert tree.settings(PoolName("mill")).resource_limits.named() == {"cpu": 400, "memory": 4 * GIB}
    assert tree.settings(PoolName("kiln")).resource_limits.named() == {"cpu": 200, "memory": 24 * 2**20}
    assert told(warned, "W01") == [
        ("W01", 3, "root.mill minResources"),
        ("W01", 4, "root.mill maxResources"),
        ("W01", 5, "root.kiln maxResources"),
    ]
    assert [each.words.partition(":")[0] for each in warned if each.code == "W01"] == [
        "'1 gcores' is ignored",
        "'2 gcores' is ignored",
        "'1' is ignored",
    ]


@pytest.mark.parametrize(
    ("text", "unread"),
    [
        ("1024 mb, 2 vcores", ""),
        ("2vcores;1024mb", ""),
        ("1024 mb and 2 vcores each", "and, each"),
        ("50% memory, 20% cpu, 10% gpu", "10% gpu"),
        ("50%", ""),
        ("memory-mb=1, vcores=2", ""),
    ],
)
def test_all_of_an_amount_that_is_not_read_is_known(text: str, unread: str) -> None:
    assert read_amounts(text, "here").unread == unread


@pytest.mark.parametrize(
    "inside",
    [
        "<pool name='reports'><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>2</minShare></pool>",
        "<pool name='reports'><schedulingMode>FIFO</schedulingMode></pool>",
        "<pool name='reports'><schedulingMode>FAIR</schedulingMode></pool><pool name='other'><weight>2</weight></pool>",
        "<pool name='reports'><minShare>2</minShare></pool>",
    ],
)
def test_the_file_of_spark_is_refused(inside: str) -> None:
    assert refusal(inside) == (
        "f.xml:2: this is Spark's fairscheduler.xml: its pools share the cores of one application; "
        "expected a fair-scheduler.xml of YARN, in which queues are <queue> elements"
    )


@pytest.mark.parametrize(
    "inside",
    [
        "<pool name='a'><maxRunningApps>5</maxRunningApps><schedulingMode>fair</schedulingMode></pool>",
        "<pool name='a'><weight>2</weight></pool>",
        "<pool name='a'><schedulingMode>fair</schedulingMode></pool><defaultQueueSchedulingMode>fair</defaultQueueSchedulingMode>",
        "<queue name='b'><schedulingMode>fair</schedulingMode></queue><pool name='a'/>",
    ],
)
def test_pools_of_older_files_of_yarn_are_no_pools_of_spark(inside: str) -> None:
    assert PoolName("a") in imported(inside)[0].pools


def test_everybody_may_change_operations_of_others_where_the_root_says_so() -> None:
    tree, warned = imported(
        "<queue name='root'><aclAdministerApps>*</aclAdministerApps>",
        "<queue name='mill'><aclAdministerApps>*</aclAdministerApps></queue>",
        "<queue name='kiln'><aclAdministerApps>ann</aclAdministerApps></queue>",
        "</queue>",
    )
    below, of_pool = imported(
        "<queue name='mill'><aclAdministerApps>*</aclAdministerApps></queue>",
        "<queue name='kiln'><aclAdministerApps>ann</aclAdministerApps></queue>",
    )

    assert tree.options.access.manage == ("*",)
    assert told(warned, "W15") == [("W15", 4, "root.kiln aclAdministerApps")]
    assert {each.words.rpartition(": ")[2] for each in warned if each.code == "W15"} == {
        "everybody may change and end operations of others"
    }
    assert (below.options.access.manage, below.settings(PoolName("mill")).access.manage) == ((), ("*",))
    assert told(of_pool, "W15") == [("W15", 3, "root.kiln aclAdministerApps")]


def test_what_is_the_same_here_is_not_warned_of() -> None:
    """An open list below an open root, and a rule with a capital."""
    tree, warned = imported(
        "<queue name='mill'><aclSubmitApps>*</aclSubmitApps></queue>",
        "<queuePlacementPolicy><Rule name='specified'/><rule name='default'/></queuePlacementPolicy>",
    )

    assert told(warned) == [("W06", 1, "root schedulingPolicy")]
    assert tree.options.placement_rules == ("specified", "default")


def test_names_of_users_become_those_that_users_have_here() -> None:
    tree, warned = imported(
        "<queue name='root'><aclSubmitApps> </aclSubmitApps>",
        "<queue name='mill'>",
        "<aclSubmitApps>grind_batch,an.na,Ops,ops,___ my_group,tech.ops,-a</aclSubmitApps></queue>",
        "</queue>",
    )

    assert tree.settings(PoolName("mill")).access.use == (
        *("grind-batch", "an-na", "ops"),
        *("group:my_group", "group:tech.ops"),
    )
    assert {each.line for each in warned if each.code == "W15"} == {4}
    words = [each.words for each in warned if each.code == "W15"]
    assert any("grind_batch is grind-batch, an.na is an-na, Ops is ops" in each for each in words)
    assert any(each.endswith("names of users here: ___") for each in words)
    assert any(each.endswith("names of groups here: -a") for each in words)


@pytest.mark.parametrize("name", ["grind_batch", "an.na", "Ops", "-x", ""])
def test_a_pool_lets_nobody_in_whose_name_no_user_can_have(name: str) -> None:
    with pytest.raises(Defects) as caught:
        POOL_ATTRIBUTES.changed(PoolConfig(), {"access": {"use": ["ann", name]}}, "pool")
    assert caught.value.problems[0].place == "pool.access.use[1]"

    allowed = POOL_ATTRIBUTES.changed(
        PoolConfig(), {"access": {"use": ["ann", "a-b"], "manage": ["*"], "write": ["-"]}}
    )
    assert allowed.value.access.use == ("ann", "a-b")


def test_a_default_maximum_without_cores_closes_pools_and_says_which() -> None:
    tree, warned = imported(
        "<defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>",
        "<queueMaxResourcesDefault>40000 mb, 0 vcores</queueMaxResourcesDefault>",
        "<queue name='mill'/>",
        "<queue name='kiln'><minResources>1 mb, 1 vcores</minResources></queue>",
        "<queue name='own'><maxResources>9 mb, 9 vcores</maxResources></queue>",
    )
    (closed,) = [each for each in warned if each.code == "W24"]

    assert tree.settings(PoolName("mill")).resource_limits.cpu == 0
    assert told([closed]) == [("W24", 3, "queueMaxResourcesDefault")]
    assert closed.words == "the limit of cpu is 0: root.mill, root.default are closed to jobs that need it"


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["<queueMaxAppsDefault>0</queueMaxAppsDefault>"], "queueMaxAppsDefault"),
        (
            [
                "<queue name='hub' type='parent'><maxChildResources>9 mb, 0 vcores</maxChildResources></queue>",
                "<queuePlacementPolicy><rule name='nestedUserQueue'><rule name='default' queue='hub'/></rule>"
                "</queuePlacementPolicy>",
            ],
            "root.hub maxChildResources",
        ),
    ],
)
def test_other_defaults_of_nothing_close_pools_with_a_warning(lines: list[str], place: str) -> None:
    assert ("W24", 2, place) in told(imported(*lines)[1])


def test_a_rule_that_leads_to_the_root_is_refused_and_says_why() -> None:
    rules = "<queuePlacementPolicy><rule name='specified'/>\n<rule name='default' queue='root'/></queuePlacementPolicy>"

    assert refusal("<queue name='mill'/>", rules) == (
        "f.xml:4: queuePlacementPolicy: root runs no operations itself; "
        "expected a queue below it, such as root.default, or the rule reject"
    )


@pytest.mark.parametrize(("create", "rules"), [("true", ("user",)), ("false", ("user existing", "reject"))])
def test_a_queue_of_the_user_right_below_the_root_is_named_as_the_user(create: str, rules: tuple[str, ...]) -> None:
    nested = f"<rule name='nestedUserQueue' create='{create}'><rule name='default' queue='root'/></rule>"
    more = "<rule name='reject'/>" if create == "false" else ""

    tree, _ = imported(f"<queuePlacementPolicy>{nested}{more}</queuePlacementPolicy>")

    assert tree.options.placement_rules == rules


def test_the_policies_of_yarn_are_known_by_their_classes() -> None:
    tree, warned = imported(
        f"<defaultQueueSchedulingPolicy>{POLICIES}.DominantResourceFairnessPolicy</defaultQueueSchedulingPolicy>",
        "<queue name='mill'><minResources>1024 mb, 1 vcores</minResources></queue>",
        f"<queue name='kiln'><schedulingPolicy>{POLICIES}.FifoPolicy</schedulingPolicy></queue>",
        f"<queue name='yard'><schedulingPolicy>{POLICIES}.FairSharePolicy</schedulingPolicy></queue>",
        f"<queue name='shed'><schedulingPolicy>{POLICIES}.{'Very' * 20}OwnPolicy</schedulingPolicy></queue>",
    )

    assert tree.settings(PoolName("mill")).strong_guarantee_resources.named() == {"cpu": 100, "memory": GIB}
    assert tree.mode(PoolName("kiln")) == PoolMode.FIFO
    assert tree.settings(PoolName("yard")).yarn_memory_only is True
    (own,) = [each for each in warned if each.code == "W07"]
    assert own.words.startswith("VeryVery")
    assert "fifo cannot be the default" in refusal(
        f"<defaultQueueSchedulingPolicy>{POLICIES}.FifoPolicy</defaultQueueSchedulingPolicy>"
    )


def test_a_queue_with_signs_that_no_pool_can_have_gets_another_name() -> None:
    tree, warned = imported(
        "<queue name='x@y'/>",
        "<queue name='q&amp;a'/>",
        "<queue name='x#y'/>",
        "<queue name='two words'><queue name='x-y'/></queue>",
        "<queuePlacementPolicy><rule name='default' queue='root.x#y'/></queuePlacementPolicy>",
    )

    assert set(tree.pools) == {"x-y", "q-a", "x-y-2", "two-words", "two-words-x-y", "default"}
    assert tree.options.placement_rules == ("default x-y-2",)
    assert told(warned, "W26") == [
        ("W26", 2, "root.x@y"),
        ("W26", 3, "root.q&a"),
        ("W26", 4, "root.x#y"),
        ("W26", 5, "root.two words"),
        ("W26", 5, "root.two words.x-y"),
    ]


@pytest.mark.parametrize("name", ["@@", "生产", "a" * 101, " "])
def test_a_queue_of_whose_name_nothing_is_left_is_refused_with_its_line(name: str) -> None:
    assert refusal(f"<queue name='{name}'/>").startswith("f.xml:2: root: queue: ")


def test_the_sample_of_hadoops_own_page_is_imported() -> None:
    """Its elements, with figures of our own."""
    tree, warned = imported(
        "<queue name='plant'>",
        "<minResources>9000 mb,0vcores</minResources><maxResources>80000 mb,0vcores</maxResources>",
        "<maxRunningApps>40</maxRunningApps><maxAMShare>0.2</maxAMShare><weight>3.0</weight>",
        "<schedulingPolicy>fair</schedulingPolicy>",
        "<queue name='mill'><aclSubmitApps>carla</aclSubmitApps><minResources>4000 mb,0vcores</minResources></queue>",
        "<queue name='booked'><reservation></reservation></queue>",
        "</queue>",
        "<queueMaxAMShareDefault>0.5</queueMaxAMShareDefault>",
        "<queueMaxResourcesDefault>30000 mb,0vcores</queueMaxResourcesDefault>",
        "<queue name='by_group' type='parent'><weight>3.0</weight>",
        "<maxChildResources>4000 mb,4vcores</maxChildResources></queue>",
        "<user name='carl'><maxRunningApps>20</maxRunningApps></user>",
        "<userMaxAppsDefault>6</userMaxAppsDefault>",
        "<queuePlacementPolicy><rule name='specified'/><rule name='primaryGroup' create='false'/>",
        "<rule name='nestedUserQueue'><rule name='secondaryGroupExistingQueue' create='false'/></rule>",
        "<rule name='default' queue='plant'/></queuePlacementPolicy>",
    )

    assert set(tree.pools) == {"plant", "mill", "booked", "by_group", "default"}
    assert tree.options.placement_rules[-1] == "default plant"
    assert {("W09", 4, "root.plant maxAMShare"), ("W24", 10, "queueMaxResourcesDefault")} <= set(told(warned))
    assert {code for code, _, _ in told(warned)} == {
        *("W06", "W09", "W11", "W12", "W13", "W15", "W24"),
    }


def test_a_file_as_a_cluster_manager_writes_it_is_imported() -> None:
    """A root with a list of nobody, drf everywhere, and a nested rule before the default."""
    tree, warned = imported(
        "<queue name='root'><weight>1.0</weight><schedulingPolicy>drf</schedulingPolicy>",
        "<aclSubmitApps> </aclSubmitApps><aclAdministerApps>*</aclAdministerApps>",
        "<queue name='default'><weight>1.0</weight><schedulingPolicy>drf</schedulingPolicy></queue>",
        "<queue name='users' type='parent'><weight>1.0</weight><schedulingPolicy>drf</schedulingPolicy></queue>",
        "</queue>",
        "<defaultQueueSchedulingPolicy>drf</defaultQueueSchedulingPolicy>",
        "<queuePlacementPolicy><rule name='specified' create='true'/>",
        "<rule name='nestedUserQueue' create='true'><rule name='default' create='true' queue='users'/></rule>",
        "<rule name='default'/></queuePlacementPolicy>",
    )

    assert warned == []
    assert tree.options.placement_rules == ("specified", "nested_user default users", "default")
    assert (tree.options.access.use, tree.options.access.manage) == (("-",), ("*",))
    assert tree.is_hub(PoolName("users"))


def test_a_file_of_the_first_hadoop_says_all_that_is_ignored() -> None:
    tree, warned = imported(
        "<pool name='a'><minMaps>5</minMaps><maxRunningJobs>3</maxRunningJobs><weight>2.0</weight></pool>",
        "<poolMaxJobsDefault>20</poolMaxJobsDefault>",
        "<user name='ann'><maxRunningJobs>6</maxRunningJobs></user>",
    )

    assert tree.settings(PoolName("a")).weight == 2
    assert told(warned, "W01") == [
        ("W01", 2, "root.a minMaps"),
        ("W01", 2, "root.a maxRunningJobs"),
        ("W01", 3, "poolMaxJobsDefault"),
        ("W01", 4, "user ann maxRunningJobs"),
    ]
