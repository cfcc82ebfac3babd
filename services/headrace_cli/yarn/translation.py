"""Translate an allocation file into pools and options of a tree. Everything without an equivalent becomes a warning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.ids import ROOT_POOL
from headrace.pools import POOL_ATTRIBUTES, PartialResources, PoolConfig
from headrace.pools.attributes.map_kinds import ResourceAmounts
from headrace.pools.pool_config import SMALLEST_WEIGHT
from headrace.resources import Resources
from headrace.tree_file.pools import ConfiguredPool
from headrace.tree_file.problems import Problems, shown
from headrace_cli.yarn.access import RIGHTS, access_of_pool, access_of_root
from headrace_cli.yarn.allocation_file import NEVER_MS, ROOT, AllocationFile, Queue
from headrace_cli.yarn.guarantees import BoundsOf
from headrace_cli.yarn.placement import Placement, placement
from headrace_cli.yarn.pool_names import pool_names
from headrace_cli.yarn.site_file import YarnSite
from headrace_cli.yarn.warnings import Warnings

#: Limit on the number of operations where YARN has no limit. It is the default limit of a tree.
_MANY: Final = 50_000
_AGGRESSIVE_MS: Final = 120_000
_POLICIES: Final = ("fair", "fifo", "drf")
_TIMEOUTS: Final = ("fairSharePreemptionTimeout", "minSharePreemptionTimeout")
_THRESHOLD: Final = "fairSharePreemptionThreshold"
#: Elements of queues that have no equivalent in Headrace, each with the code and the text of its warning.
_DROPPED: Final = {
    "maxAMShare": ("W09", "dropped, because application masters have no limit of their own here"),
    "reservation": (
        "W11",
        "Headrace has no reservations, so the queue becomes an ordinary pool; integral guarantees are the nearest equivalent",
    ),
    **dict.fromkeys(
        ("aclAdministerReservations", "aclListReservations", "aclSubmitReservations"),
        ("W11", "dropped, because Headrace has no reservations"),
    ),
}
_DROPPED_OF_ALL: Final = {
    "queueMaxAMShareDefault": ("W09", "dropped, because application masters have no limit of their own here"),
    **dict.fromkeys(
        ("reservation-planner", "reservation-agent", "reservation-policy"),
        ("W11", "dropped, because Headrace has no reservations"),
    ),
}


@dataclass(frozen=True)
class Imported:
    """The pools and options of a tree that a file describes."""

    #: Pools, each after its parent.
    pools: list[ConfiguredPool]
    #: Options to set; None: reset the option to its default. All other options stay as they are.
    options: dict[str, object]


def imported(
    file: AllocationFile, site: YarnSite | None, total: Resources, problems: Problems, warnings: Warnings
) -> Imported:
    """Translate a file for a tree with the resources `total`. Raises `UnusableFile`."""
    names = pool_names(list(file.root.all()), warnings)
    placed = placement(file, site, names, problems)
    found = _Translation(file, site, total, names, placed, warnings).translate()
    problems.refuse()
    return found


class _Translation:
    def __init__(
        self,
        file: AllocationFile,
        site: YarnSite | None,
        total: Resources,
        names: dict[str, str],
        placed: Placement,
        warnings: Warnings,
    ) -> None:
        self._file = file
        self._site = site
        self._placed = placed
        self._warnings = warnings
        self._queues = list(file.root.all())
        self._names = names
        self._policies: dict[str, str] = {}
        self._judge_policies(file.root, "fair")
        fair = {path for path, policy in self._policies.items() if policy not in ("drf", "fifo")}
        # For a fifo queue, the policy of its parent decides whether only the memory in its minimum counts.
        fair |= {
            each.path for each in self._queues if self._policies[each.path] == "fifo" and self._above(each) in fair
        }
        self._bounding = BoundsOf(file, fair, total, warnings)
        self._bounds = self._bounding.work_out()

    def translate(self) -> Imported:
        """Return the options and the pools."""
        for key, said in self._file.values.items():
            if key in _DROPPED_OF_ALL:
                code, words = _DROPPED_OF_ALL[key]
                self._warnings.say(code, said.line, key, words)
        self._dropped(self._file.root)
        options = self._options()
        self._users()
        pools: list[ConfiguredPool] = []
        self._pools(self._file.root, pools, self._effective(self._file.root, {}), protected=self._is_shut())
        return Imported(pools, options)

    # --- the tree ---------------------------------------------------------------------------------------------------

    def _options(self) -> dict[str, object]:
        file, root = self._file, self._file.root
        values = self._effective(root, {})
        fair_ms, min_ms = values["fairSharePreemptionTimeout"], values["minSharePreemptionTimeout"]
        options: dict[str, object] = {
            "fair_share_starvation_timeout": fair_ms,
            "fair_share_aggressive_starvation_timeout": max(int(fair_ms), _AGGRESSIVE_MS),
            "fair_share_starvation_tolerance": values[_THRESHOLD],
            "min_share_preemption_timeout": min_ms if min_ms < NEVER_MS else None,
            "max_operation_count_per_pool": _MANY,
            "max_running_operation_count_per_pool": file.get("queueMaxAppsDefault", _MANY),
            # The rules are set even if they are the default, because otherwise the rules from the import of another file would stay.
            "placement_rules": self._placed.rules,
            "default_parent_pool": ROOT_POOL,
            "max_running_operation_count": (
                running := root.get("maxRunningApps", file.get("queueMaxAppsDefault", _MANY))
            ),
            # Switch reservations of nodes off: the file was written for a cluster of YARN, which has no such reservations. Nodes on which
            # jobs fail are still held back, because applications in YARN avoid such nodes too.
            "node_reservation_time": None,
            "preempt_at_bound_for_owed_jobs": None,
            "main_resource": "memory" if self._bounds.by_memory else None,
            "yarn/memory_only": (self._policies[ROOT] == "fair") or None,
            **self._of_each_job(root),
            **access_of_root(root, self._warnings),
        }
        if "queueMaxAppsDefault" in file.values:
            said = file.values["queueMaxAppsDefault"]
            words = f"applies to parent queues too, and at most {running} operations run in the whole tree"
            self._warnings.say("W12", said.line, "queueMaxAppsDefault", words)
            if said.value == 0:
                words = "the default is 0, so nothing runs in a pool without a limit of its own"
                self._warnings.say("W24", said.line, "queueMaxAppsDefault", words)
        if self._is_shut():
            options["preemption"] = "off"
        elif self._site is not None:
            options["preemption"] = "on" if self._site.preemption else "off"
        if self._site is not None:
            options |= {"yarn/enabled": self._site.preemption, **self._site.options}
            if self._site.preemption:
                options["preemption_policy"] = "yarn_legacy" if self._site.is_legacy else "yarn"
        self._judge_preemption()
        self._judge_lists()
        return options

    def _is_shut(self) -> bool:
        return self._file.root.get("allowPreemptionFrom", True) is False

    def _judge_preemption(self) -> None:
        said = [
            values[key]
            for values in (self._file.values, *(queue.values for queue in self._queues))
            for key in (*_TIMEOUTS, "defaultFairSharePreemptionTimeout", "defaultMinSharePreemptionTimeout")
            if key in values
        ]
        line = min((each.line for each in said), default=self._file.root.line)
        if self._site is None and said:
            words = "there are timeouts, but without --yarn-site it is not known whether YARN preempts: the tree's preemption stays"
            self._warnings.say("W16", line, "preemption", words)
        elif self._site is not None and self._site.preemption and all(each.value >= NEVER_MS for each in said):
            words = "is on in yarn-site.xml, but nothing is ever preempted, because no timeout is finite"
            self._warnings.say("W16", line, "preemption", words)

    def _judge_lists(self) -> None:
        lists = [said for queue in self._queues for key, said in queue.values.items() if key in RIGHTS]
        if lists and self._site is not None and not self._site.acls:
            words = (
                "without yarn.acl.enable in yarn-site.xml no access list has an effect in YARN; here they take effect"
            )
            self._warnings.say("W15", min(said.line for said in lists), "access lists", words)

    def _users(self) -> None:
        for name, said in self._file.users.items():
            words = f"{said.value} running operations of this user in all queues: dropped, because users have no limits here"
            self._warnings.say("W13", said.line, f"user {name}", words)
        if "userMaxAppsDefault" in self._file.values:
            said = self._file.values["userMaxAppsDefault"]
            hubs = ", ".join(sorted(self._names[path] for path in self._placed.hubs))
            where = (
                f"applies to each user's pool below {hubs}, and not to all pools together"
                if hubs
                else "is dropped, because no queue makes pools for users"
            )
            self._warnings.say("W13", said.line, "userMaxAppsDefault", f"{said.value} {where}")

    # --- pools ------------------------------------------------------------------------------------------------------

    def _pools(self, above: Queue, into: list[ConfiguredPool], values: dict[str, float], *, protected: bool) -> None:
        for queue in above.children.values():
            own = self._effective(queue, values)
            allows = queue.get("allowPreemptionFrom")
            if allows and protected:
                line, place = queue.values["allowPreemptionFrom"].line, f"{queue.path} allowPreemptionFrom"
                self._warnings.say("W19", line, place, "true has no effect, because a queue above has false")
            attributes: dict[str, object] = {
                **self._sharing(queue),
                **self._of_each_job(queue),
                **self._timeouts(queue, own),
                **({"preemption": "off"} if allows is False and not protected else {}),
                **access_of_pool(queue, self._file.root, self._warnings),
            }
            if self._policies[queue.path] == "fifo" and min(own[key] for key in _TIMEOUTS) < NEVER_MS:
                words = "a fifo queue with a timeout: later operations are owed what the first leaves, and all their jobs may be preempted"
                self._warnings.say("W21", queue.line, queue.path, words)
            self._dropped(queue)
            settings = POOL_ATTRIBUTES.changed(PoolConfig(), attributes, queue.path).value
            name, parent = self._names[queue.path], self._names[above.path]
            into.append(ConfiguredPool(name, parent, POOL_ATTRIBUTES.written(settings), queue.path))
            self._pools(queue, into, own, protected=protected or allows is False)

    def _sharing(self, queue: Queue) -> dict[str, object]:
        attributes: dict[str, object] = {"weight": queue.get("weight", 1.0)}
        if queue.get("weight", 1.0) < SMALLEST_WEIGHT:
            attributes["weight"] = SMALLEST_WEIGHT
            words = f"{queue.get('weight'):g} gives only the minimum in YARN; here it becomes the smallest weight, {SMALLEST_WEIGHT:.2g}"
            self._warnings.say("W08", queue.values["weight"].line, f"{queue.path} weight", words)
        if self._policies[queue.path] == "fifo":
            attributes["mode"] = "fifo"
        # The attribute also applies to all pools below its pool, so only the topmost pool of a chain with policy fair sets it.
        if self._policies[queue.path] == "fair" and self._policies[self._above(queue)] != "fair":
            attributes["yarn_memory_only"] = True
        for key, found in (
            ("strong_guarantee_resources", self._bounds.guarantees),
            ("resource_limits", self._bounds.limits),
        ):
            if queue.path in found:
                attributes[key] = ResourceAmounts().write(PartialResources(**found[queue.path]))
        if "maxRunningApps" in queue.values:
            attributes["max_running_operation_count"] = queue.get("maxRunningApps")
            if queue.get("maxRunningApps") == 0:
                line = queue.values["maxRunningApps"].line
                self._warnings.say(
                    "W24", line, f"{queue.path} maxRunningApps", "the limit is 0, so nothing runs in the pool"
                )
        if queue.path in self._placed.hubs:
            attributes |= self._of_hub(queue)
        elif "maxChildResources" in queue.values:
            line, place = queue.values["maxChildResources"].line, f"{queue.path} maxChildResources"
            self._warnings.say("W14", line, place, "dropped, because no placement rule makes queues below this queue")
        elif queue.is_inner:
            attributes["forbid_immediate_operations"] = True
        return attributes

    def _of_each_job(self, queue: Queue) -> dict[str, object]:
        """Return the attribute that limits the resources of one job. Empty if the queue sets no such limit."""
        said = queue.values.get("maxContainerAllocation")
        if said is None:
            return {}
        place = f"{queue.path} maxContainerAllocation"
        figures = self._bounding.resolved(said.value, said.line, place)
        words = "becomes max_job_resource_limits, which bounds all pools below; in YARN a queue below may have a higher bound"
        self._warnings.say("W10", said.line, place, words)
        return {"max_job_resource_limits": ResourceAmounts().write(PartialResources(**(figures or {})))}

    def _of_hub(self, queue: Queue) -> dict[str, object]:
        subpools: dict[str, object] = {}
        if "maxChildResources" in queue.values:
            said = queue.values["maxChildResources"]
            place = f"{queue.path} maxChildResources"
            figures = self._bounding.resolved(said.value, said.line, place)
            self._bounding.warn_if_closed(figures, said.line, place, "each user's pool is")
            subpools["resource_limits"] = ResourceAmounts().write(PartialResources(**(figures or {})))
        if "userMaxAppsDefault" in self._file.values:
            subpools["max_running_operation_count"] = self._file.get("userMaxAppsDefault")
        return {"create_ephemeral_subpools": True} | ({"ephemeral_subpool_config": subpools} if subpools else {})

    def _timeouts(self, queue: Queue, values: dict[str, float]) -> dict[str, object]:
        """Return the timeouts and the threshold that the queue sets itself. The pool inherits the values that its queue does not set from
        its parent, as in YARN.
        """
        names = {
            "fairSharePreemptionTimeout": "fair_share_starvation_timeout",
            "minSharePreemptionTimeout": "min_share_preemption_timeout",
            _THRESHOLD: "fair_share_starvation_tolerance",
        }
        return {name: values[key] for key, name in names.items() if key in queue.values}

    def _effective(self, queue: Queue, above: dict[str, float]) -> dict[str, float]:
        """Return the timeouts and the threshold in force for a queue."""
        values: dict[str, float] = {}
        for key, infinite in (*((key, NEVER_MS) for key in _TIMEOUTS), (_THRESHOLD, 0.5)):
            default = f"default{key[0].upper()}{key[1:]}"
            values[key] = queue.get(key, above[key] if above else self._file.get(default, infinite))
        clamped = min(1.0, max(0.0, values[_THRESHOLD]))
        if clamped != values[_THRESHOLD] and (not above or _THRESHOLD in queue.values):
            said = queue.values.get(_THRESHOLD) or self._file.values["defaultFairSharePreemptionThreshold"]
            self._warn_once(
                "W17", said.line, f"{queue.path} {_THRESHOLD}", f"{values[_THRESHOLD]:g} becomes {clamped:g}"
            )
        return values | {_THRESHOLD: clamped}

    def _warn_once(self, code: str, line: int, place: str, words: str) -> None:
        if not any((each.code, each.line) == (code, line) for each in self._warnings.found):
            self._warnings.say(code, line, place, words)

    def _dropped(self, queue: Queue) -> None:
        for key, said in queue.values.items():
            if key in _DROPPED:
                code, words = _DROPPED[key]
                refuses = key == "maxAMShare" and queue.is_inner and queue.path != ROOT
                self._warnings.say(code, said.line, f"{queue.path} {key}", words, yarn_refuses=refuses)

    # --- policies ---------------------------------------------------------------------------------------------------

    def _judge_policies(self, queue: Queue, above: str) -> None:
        """Find the policies in force for a queue and all queues below it. Warn of policies that YARN would refuse, or under which YARN
        shares resources differently.
        """
        default = self._file.get("defaultQueueSchedulingPolicy", "fair")
        policy = queue.get("schedulingPolicy", default)
        key = "schedulingPolicy" if "schedulingPolicy" in queue.values else "defaultQueueSchedulingPolicy"
        said = queue.values.get(key) or self._file.values.get(key)
        line, place = said.line if said else queue.line, f"{queue.path} schedulingPolicy"
        if policy not in _POLICIES:
            # The name shown is the last part of the Java class path.
            words = f"{shown(policy.rpartition('.')[2] or policy)} is not one of YARN's policies; the import uses fair"
            self._warn_once("W07", line, place, words)
            policy = "fair"
        if policy == "fifo" and (queue.is_inner or queue.path == ROOT):
            self._warnings.say("W07", line, place, "YARN refuses fifo on a parent queue; the import uses fair")
            policy = "fair"
        if policy == "drf" and above == "fair" and queue.path != ROOT:
            self._warnings.say("W07", line, place, "YARN refuses drf below fair; the import uses fair")
            policy = "fair"
        if policy == "fair" and (above != "fair" or queue.path == ROOT):
            words = "policy fair shares only memory: here the same holds under a YARN policy; otherwise every wanted resource counts"
            self._warnings.say("W06", line, place, words)
        self._policies[queue.path] = policy
        for child in queue.children.values():
            self._judge_policies(child, policy)

    def _above(self, queue: Queue) -> str:
        return queue.path.rpartition(".")[0]
