"""1,000 random requests of people in groups are decided as Hadoop's access lists decide them, from files to decisions."""

from __future__ import annotations

from random import Random
from xml.sax.saxutils import escape

import msgspec

from headrace.ids import GroupName, OperationId, PoolName, TreeName, group_name
from headrace.wire import operations as wire
from headrace.wire.groups import Group
from headrace.wire.operations import OperationSpec
from headrace.wire.refusals import NotAllowed
from headrace_admission.engine import AdmissionEngine
from headrace_admission.state.rules import GlobalRules, rules_of
from tests.reference.hadoop_acl import ADMINISTER, SUBMIT, has_access, may_submit
from tests.support.clocks import at
from tests.support.yarn_files import translated, tree_of

PEOPLE = ["ada", "ben", "cleo", "dan", "eve"]
GROUPS = ["research", "tech.ops", "Prod_1", "guests", "empty"]
TREE = TreeName("default")
FILES, REQUESTS = 50, 20
#: Its operations are changed, so that only rights given by lists count.
OWNER = "owner"


def a_list(random: Random, *, everybody: float) -> str:
    if random.random() < everybody:
        return random.choice(["*", " *", "ada,*"])
    users = ",".join(random.sample(PEOPLE, random.choice([0, 0, 1, 2])))
    groups = ",".join(random.sample(GROUPS, random.choice([0, 1, 1, 2])))
    return f"{users} {groups}"


def a_file(random: Random) -> tuple[str, dict[tuple[str, str], str], list[str]]:
    """An allocation file of three levels, its lists, and the paths of its queues without children.

    The root always says who administers: without that YARN lets everybody do everything, which an import does not take over.
    """
    lists = {("root", ADMINISTER): a_list(random, everybody=0), ("root", SUBMIT): a_list(random, everybody=0.15)}
    leaves: list[str] = []

    def queue(path: str, depth: int) -> str:
        for acl in (SUBMIT, ADMINISTER):
            if depth and random.random() < 0.5:
                lists[path, acl] = a_list(random, everybody=0.1)
        said = "".join(
            f"<{acl}>{escape(lists[path, acl])}</{acl}>" for acl in (SUBMIT, ADMINISTER) if (path, acl) in lists
        )
        names = [f"{path.rpartition('.')[2]}{letter}" for letter in "ab"] if depth < 3 else []
        leaves.extend([] if names else [path])
        return f"<queue name='{path.rpartition('.')[2]}'>{said}{''.join(queue(f'{path}.{n}', depth + 1) for n in names)}</queue>"

    return f"<allocations>{queue('root', 0)}</allocations>", lists, leaves


def test_a_thousand_requests_are_decided_as_hadoop_decides_them() -> None:
    random = Random(39)
    seen: list[tuple[str, bool]] = []
    for number in range(FILES):
        text, lists, leaves = a_file(random)
        found, _ = translated(text)
        tree = tree_of(found)
        engine = AdmissionEngine(GlobalRules(administrators=frozenset({"root"})))
        rules = msgspec.structs.replace(rules_of(tree.tree), max_ephemeral_pools_per_user=REQUESTS)
        engine.on_configuration(TREE, rules, at(0))
        book = engine.state.configuration.groups
        for name in GROUPS[:-1]:
            members = random.sample(PEOPLE, random.randrange(4))
            book.take(group_name(name), Group(group_name(name), dict.fromkeys(members, number)))
        # Some groups come from the host, and a person may be in the same group there and in the bucket.
        for user in PEOPLE:
            book.take_of_host(user, [GroupName(each) for each in random.sample(GROUPS, random.randrange(2))])
        names = {each.place: each.name for each in found.pools}
        for request in range(REQUESTS):
            user, path = random.choice(PEOPLE), random.choice(leaves)
            groups = [str(each.name) for each in book.of(user)]
            one = OperationId(f"operation-{number}-{request}")
            kind = random.choice(["start", "start", "new", "move", "change"])
            expected, answer = ask(engine, kind, one, user, path, names[path], lists, groups)
            kinds = (wire.StartAnswer, wire.OperationView) if expected else (NotAllowed,)
            assert isinstance(answer, kinds), (kind, user, groups, path, text, answer)
            seen.append((kind, expected))

    assert len(seen) == FILES * REQUESTS == 1_000
    for kind in ("start", "new", "move", "change"):
        assert min(seen.count((kind, each)) for each in (True, False)) >= 15


def ask(
    engine: AdmissionEngine, kind: str, one: OperationId, user: str, path: str, pool: str, lists: dict[tuple[str, str], str],
    groups: list[str],
) -> tuple[bool, object]:  # fmt: skip
    """What Hadoop says to a request, and the answer to it."""
    state = engine.state

    def start(by: str, into: str, name: OperationId = one) -> object:
        wanted = wire.StartOperation(name, OperationSpec(PoolName(into), ["true"]))
        return engine.on_start(wanted, by, at(0)).answer

    match kind:
        case "start":
            return may_submit(lists, path, user, groups), start(user, pool)
        case "new":
            # An ephemeral pool directly below the root: the lists of the root count.
            return may_submit(lists, "root", user, groups), start(user, f"new-{one}")
        case "move":
            # Into the pool from an ephemeral pool, as an administrator: the rights of the owner count.
            state.configuration.everywhere = GlobalRules(administrators=frozenset({"root", user}))
            assert isinstance(start(user, f"old-{one}"), wire.StartAnswer)
            state.configuration.everywhere = GlobalRules(administrators=frozenset({"root"}))
            moved = engine.on_update(wire.UpdateOperation(one, pool=PoolName(pool)), "root", at(0)).answer
            return may_submit(lists, path, user, groups), moved
        case _:
            state.configuration.everywhere = GlobalRules(administrators=frozenset({"root", OWNER}))
            assert isinstance(start(OWNER, pool), wire.StartAnswer)
            state.configuration.everywhere = GlobalRules(administrators=frozenset({"root"}))
            changed = engine.on_update(wire.UpdateOperation(one, weight=2.0), user, at(0)).answer
            return has_access(lists, path, ADMINISTER, user, groups), changed
