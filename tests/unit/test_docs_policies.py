"""docs/why/policies.md says what the services do: its three tenants come again, and every figure of its tables is compared."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from docs.pictures.build import pictures_of
from docs.pictures.policies import BEGIN_S, PAGE, PICTURES, TENANTS, draw, run
from headrace.pools import POOL_ATTRIBUTES, TREE_ATTRIBUTES, PreemptionPolicy, YarnOptions

TEXT = PAGE.read_text()
TABLES = {
    mark: [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()[2:]]
    for mark, text in re.findall(r"^<!-- table: (.+) -->\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
}


def happenings(policy: PreemptionPolicy) -> dict[int, str]:
    """By seconds since three came: who was told to end, how many were warned, or how many jobs each has from then on."""
    made = run(policy)
    found = {0: jobs(policy, BEGIN_S)}
    for at, (before, after) in enumerate(pairwise(made.seconds[BEGIN_S:]), start=1):
        told = [name for second, name, _ in made.taken if second == at + BEGIN_S]
        if told:
            found[at] = f"{', '.join(told)} told to end"
        elif after.warned > before.warned:
            found[at] = f"{after.warned} warned"
        elif after.running != before.running:
            found[at] = jobs(policy, at + BEGIN_S)
    return found


def jobs(policy: PreemptionPolicy, second: int) -> str:
    return ", ".join(str(run(policy).seconds[second].running[name]) for name in TENANTS)


def test_the_timeline_is_what_the_engines_come_to() -> None:
    columns = [happenings(policy) for policy in PreemptionPolicy]
    moments = sorted({at for column in columns for at in column})

    assert TABLES["timeline"] == [[str(at), *(column.get(at, "") for column in columns)] for at in moments]


@pytest.mark.parametrize("row", TABLES["tolerance"], ids=lambda row: str(row[0]))
def test_what_three_has_in_the_end_depends_on_the_tolerance(row: list[str]) -> None:
    assert row[1:] == [str(run(policy, float(row[0])).seconds[-1].running["three"]) for policy in PreemptionPolicy]


def test_nobody_lost_more_than_it_had_beyond_its_share() -> None:
    for policy in PreemptionPolicy:
        assert sorted(name for _, name, _ in run(policy).taken) == ["one", "two", "two"]


def test_every_option_that_the_page_names_can_be_set() -> None:
    known = {*POOL_ATTRIBUTES.names, *TREE_ATTRIBUTES.names, *YarnOptions.__struct_fields__, *PreemptionPolicy}
    named = set(re.findall(r"`(?:yarn/)?([a-z]+(?:_[a-z]+)+)[`=:]", TEXT))

    assert len(named) > 8
    assert named <= known


def test_every_picture_of_the_built_page_is_drawn_and_every_one_drawn_is_shown(tmp_path: Path) -> None:
    assert pictures_of(TEXT) == [f"policies/{name}.svg" for name in PICTURES]
    for name in PICTURES:
        draw(name, tmp_path / f"{name}.svg")
        assert "</svg>" in (tmp_path / f"{name}.svg").read_text()
