"""Every mistake in a file is told: with its line, its key, what stands there and what would do; and all of them at once."""

from __future__ import annotations

import pytest

from headrace.pools import FifoSortParameter, IntegralType, PoolMode
from headrace.resources import RESOURCE_NAMES, Resources
from headrace.tree_file.problems import UnusableFile
from headrace_fair_share.hdrf.model import TreeInput
from headrace_fair_share.plan import description

TOTAL = "total: {cpu: 100, memory: 100G}\n"


def complaints(text: str) -> list[str]:
    with pytest.raises(UnusableFile) as caught:
        description.described(text.encode(), "f")
    return str(caught.value).splitlines()


def described(text: str) -> TreeInput:
    return description.described(text.encode()).input


def test_amounts_are_read_as_people_write_them() -> None:
    tree = described(TOTAL + "pools: {a: {strong_guarantee_resources: {cpu: 0.5, memory: 512M, gpu: 0}}}")

    assert tree.total == Resources(cpu=10_000, memory=100 * 1024**3)
    assert tree.pools[0].strong_guarantee == (None, 50, 0, 512 * 1024**2, None)


def test_pools_stand_in_each_other_or_name_their_parents_in_maps_or_lists() -> None:
    nested = described(TOTAL + "pools: {a: {pools: {b: {weight: 2}}}, c: }")
    listed = described(TOTAL + "pools: [{name: b, weight: 2, parent: a}, {name: a}, {name: c, parent: <Root>}]")

    expected = [("a", -1, None), ("b", 0, 2.0), ("c", -1, None)]
    for tree in (nested, listed):
        assert [(pool.name, pool.parent, pool.weight) for pool in tree.pools] == expected


def test_settings_have_the_names_that_they_have_everywhere() -> None:
    tree = described(
        TOTAL
        + """
options:
  main_resource: memory
  infer_weight_from_guarantees_share_multiplier: 10
  enable_improved_fair_share_by_fit_factor_computation: true
  integral_guarantees: {smooth_period: 30s, pool_capacity_saturation_period: 1h}
pools:
  a:
    integral_guarantees:
      {guarantee_type: burst, resource_flow: {cpu: 1}, burst_guarantee_resources: {cpu: 3}, can_accept_free_volume: false}
    accumulated_resource_volume: {cpu: 60}
  b: {mode: fifo, fifo_sort_parameters: [pending_job_count, weight], resource_limits: {cpu: 7}}
"""
    )

    options, (burst, fifo) = tree.options, tree.pools
    assert (options.main_resource, options.infer_weight_multiplier, options.improved) == (3, 10.0, True)
    assert (options.smooth_period_s, options.saturation_period_s) == (30.0, 3600.0)
    assert (burst.integral, burst.resource_flow.cpu, burst.burst_guarantee.cpu) == (IntegralType.BURST, 100, 300)
    assert not burst.can_accept_free_volume
    assert tree.integral["a"].volume == (0.0, 6000.0, 0.0, 0.0, 0.0)
    assert (fifo.mode, fifo.fifo_sort) == (
        PoolMode.FIFO,
        (FifoSortParameter.PENDING_JOB_COUNT, FifoSortParameter.WEIGHT),
    )
    assert fifo.limits == (None, 700, None, None, None)


def test_operations_are_jobs_of_one_size_or_demand_and_usage() -> None:
    tree = described(
        """
total: {cpu: 100, user_slots: 50}
pools: {p: }
operations:
  a: {pool: p, job_count: 10, running_jobs: 3, resources: {cpu: 2, memory: 1G}, weight: 2, is_gang: true}
  b: {pool: p, resource_demand: {cpu: 5}, resource_usage: {cpu: 1}, resource_limits: {cpu: 3}}
"""
    )

    first, second = tree.operations
    assert first.demand == Resources(user_slots=10, cpu=2000, memory=10 * 1024**3)
    assert first.usage == Resources(user_slots=3, cpu=600, memory=3 * 1024**3)
    assert (first.pending_job_count, first.weight, first.gang, first.start_time_ms) == (7, 2.0, True, 0)
    assert described(TOTAL + "pools: {p: }\noperations: {a: {pool: p, resources: {cpu: 1}}}").operations[0].demand == (
        Resources(cpu=100)
    )
    assert (second.demand.cpu, second.usage.cpu, second.limits[1], second.start_time_ms) == (500, 100, 300, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pools: {a: }", ["f:1: total: missing; expected the resources to share, such as {cpu: 100, memory: 400G}"]),
        ("total: {cpu: 0}", ["f:1: total: nothing to share; expected at least one resource with an amount above 0"]),
        ("total: 5", ["f:1: total: 5 cannot be used; expected amounts by resource such as {cpu: 10, memory: 4G}, "
            "of " + ", ".join(RESOURCE_NAMES)]),
        (TOTAL + "pool: {a: }", ["f:2: pool: unknown key; did you mean pools?"]),
        (TOTAL + "pools: {a: {wieght: 2}}", ["f:2: pools.a.wieght: unknown key; did you mean weight?"]),
        (
            TOTAL + "pools: {a: {strong_guarantee_resources: {cores: 2}}}",
            [
                "f:2: pools.a.strong_guarantee_resources.cores: unknown key; "
                "expected one of user_slots, cpu, gpu, memory, network"
            ],
        ),
        (TOTAL + "pools:\n  a: {}\n  a: {}", ["f:4: a: is in the map twice; line 3 has it already; expected each key once"]),
        (
            TOTAL + "pools:\n  a: {}\n  b: {pools: {a: }}",
            ["f:4: pools.b.pools.a: pool a is on line 3 already; expected each name once in the tree"],
        ),
        (
            TOTAL + "pools: {vision: , speech: {parent: vison}}",
            ["f:2: pools.speech.parent: there is no pool 'vison'; did you mean vision?"],
        ),
        (
            TOTAL + "pools:\n  a: {parent: b}\n  b: {parent: c}\n  c: {parent: a}\n  d: {parent: a}",
            ["f:3: pools.a.parent: its parents lead back to itself: a in b in c in a; expected parents that lead to <Root>"],
        ),
        (
            TOTAL + "pools: {a: {parent: a}}",
            ["f:2: pools.a.parent: its parents lead back to itself: a in a; expected parents that lead to <Root>"],
        ),
        (
            TOTAL + "pools:\n  a:\n    pools:\n      b: {parent: c}\n  c:",
            ["f:5: pools.a.pools.b.parent: c cannot be used; expected a, the pool that it is nested in, or no parent"],
        ),
        (
            TOTAL + "pools:\n  a: {mode: fifo}\n  b: {parent: a}",
            ["f:4: pools.b: a pool in fifo pool a (line 3); expected only operations in a fifo pool"],
        ),
        (
            TOTAL + "pools: {A b: }",
            [
                "f:2: pools.A b: 'A b' is not a name of a pool; "
                "expected 1 to 100 characters, such as a-z, 0-9, '-' and '_', without blanks and slashes"
            ],
        ),
        (TOTAL + "pools: 7", ["f:2: pools: 7 cannot be used; expected a map by name, or a list of maps with name"]),
        (TOTAL + "pools: [{weight: 1}]", ["f:2: pools[0]: no name; expected a map with name and settings"]),
        (
            TOTAL + "pools: {a: {integral_guarantees: {guarantee_type: relaxed, burst_guarantee_resources: {cpu: 1}}}}",
            [
                "f:2: pools.a.integral_guarantees.burst_guarantee_resources: "
                "/a has a burst guarantee (cpu 1), but its guarantee_type is relaxed. "
                "Remove the burst guarantee, or set guarantee_type to burst"
            ],
        ),
        (
            TOTAL + "pools:\n  a:\n    integral_guarantees: {guarantee_type: relaxed, resource_flow: {cpu: 9}}\n"
            "    pools:\n      b: {integral_guarantees: {guarantee_type: burst, resource_flow: {cpu: 5}}}",
            [
                "f:6: pools.a.pools.b.integral_guarantees: /a/b has an integral guarantee (flow cpu 5) below /a, whose "
                "guarantee_type is relaxed. Only one of them may have an integral guarantee"
            ],
        ),
        (
            TOTAL + "pools: {a: {accumulated_resource_ratio_volume: 1}}",
            ["f:2: pools.a: savings without integral guarantees; expected guarantee_type burst or relaxed"],
        ),
        (
            TOTAL + "pools: {a: }\noperations: {o: {resources: {cpu: 1}}}",
            ["f:3: operations.o.pool: missing; expected the pool of the operation"],
        ),
        (
            TOTAL + "pools: {alpha: }\noperations: {o: {pool: alhpa, resources: {cpu: 1}}}",
            ["f:3: operations.o.pool: there is no pool alhpa; did you mean alpha?"],
        ),
        (
            TOTAL + "pools: {a: }\noperations: {o: {pool: a}}",
            ["f:3: operations.o: no resources; expected resources of each job and job_count, or resource_demand"],
        ),
        (
            TOTAL + "pools: {a: }\noperations: {o: {pool: a, job_count: 1, resource_demand: {cpu: 1}}}",
            ["f:3: operations.o: both job_count and resource_demand; expected either jobs and their resources, or demand and usage"],
        ),
        (
            TOTAL + "pools: {a: }\noperations: {o: {pool: a, job_count: 1, running_jobs: 2, resources: {cpu: 1}}}",
            ["f:3: operations.o.running_jobs: 2 of 1 jobs run; expected at most job_count"],
        ),
        (
            TOTAL + "pools: {a: }\noperations: {o: {pool: a, resource_demand: {cpu: 1}, resource_usage: {gpu: 1}}}",
            ["f:3: operations.o.resource_usage: more than resource_demand; expected a usage of at most the demand"],
        ),
        (
            TOTAL + "pools: {a: {integral_guarantees: {resource_flow: {cpu: 1e3}}}}",
            [
                "f:2: pools.a.integral_guarantees.resource_flow.cpu: 1e3 cannot be used; "
                "expected a number of cores such as 1, 0.5 or 12.25"
            ],
        ),
        (
            TOTAL + "options: {integral_guarantees: {smooth_period: 0s}}",
            [
                "f:2: options.integral_guarantees.smooth_period: 0s cannot be used; "
                "expected a length of time with a unit, such as 30s or 500ms, 1ms or more"
            ],
        ),
        (
            "total: {cpu: 1, memory: 1T}\npools: {a: {strong_guarantee_resources: {cpu: 9999999}}}",
            ["f:2: pools.a: too large a strong guarantee; expected guarantees whose sum is at most 1e+06 times the cluster"],
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_what_would_do(text: str, said: list[str]) -> None:
    assert complaints(text) == said


@pytest.mark.parametrize("weight", ["0", "-1", ".nan", ".inf", "1e400", "many", "''", "true", "[1]", "{}", "9" * 100])
def test_a_weight_is_a_finite_number_above_zero(weight: str) -> None:
    (said,) = complaints(TOTAL + f"pools: {{a: {{weight: {weight}}}}}")

    assert said.startswith("f:2: pools.a.weight: ")
    assert said.endswith("expected a positive number that is not tiny, up to 67108864")


@pytest.mark.parametrize("figure", ["-1", ".nan", "-.inf", "1e3", "0.001", "4G", "", "true", "[]", "9" * 50])
def test_an_amount_is_finite_and_not_negative(figure: str) -> None:
    text = TOTAL + f"pools: {{a: {{resource_limits: {{cpu: {figure or repr('')}}}}}}}"

    (said,) = complaints(text)

    assert said.startswith("f:2: pools.a.resource_limits.cpu: ")


@pytest.mark.parametrize("value", ["yes", "1", "[]", "maybe"])
def test_a_flag_is_true_or_false(value: str) -> None:
    (said,) = complaints(TOTAL + f"pools: {{a: {{compute_promised_guarantee_fair_share: {value}}}}}")

    assert said.endswith("expected true or false")


def test_pools_cannot_stand_deeper_than_the_service_allows() -> None:
    chain = "".join(f"\n  p{n}: {{parent: {f'p{n - 1}' if n else '<Root>'}}}" for n in range(32))
    nested = TOTAL + "pools: " + "".join(f"{{p{n}: {{pools: " for n in range(40)) + "{}" + "}}" * 40

    assert complaints(TOTAL + "pools:" + chain) == ["f:33: pools.p30: level 31 of pools; expected at most 30 levels"]
    assert any("too deep" in said or "level 31" in said for said in complaints(nested))


def test_all_mistakes_are_told_at_once() -> None:
    said = complaints("pools:\n  a: {weight: 0}\n  b: {mode: lifo}\n  c: {parent: d}\noperations:\n  o: {pool: z}\n")

    assert [each.split(": ")[1] for each in said] == [
        "total",
        "pools.a.weight",
        "pools.b.mode",
        "pools.c.parent",
        "operations.o.pool",
        "operations.o",
    ]
