"""docs/why/real-workloads.md: its figures are those of the records, its pictures are drawn, and no job of a workload is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate.real_workloads import commands_of, with_figures
from docs.pictures.build import pictures_of
from docs.pictures.real_workloads import FOLDER, PAGE, PICTURES, draw, record
from headrace.ids import ROOT_POOL
from headrace_cli.simulate.tables import notes

TEXT = PAGE.read_text()


def test_the_figures_of_the_page_are_those_of_the_records() -> None:
    assert with_figures(TEXT) == TEXT, "run: python -m docs.generate.real_workloads"
    assert [words[0] for words in commands_of(TEXT).values()] == ["simulate"] * len(PICTURES)


def test_the_pictures_are_drawn(tmp_path: Path) -> None:
    assert pictures_of(TEXT) == [f"{FOLDER.name}/{name}.svg" for name in PICTURES]
    for name in PICTURES:
        draw(name, tmp_path / f"{name}.svg")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_every_job_ends_or_is_named_and_no_usage_is_above_the_capacity(name: str) -> None:
    answer = record(name)

    assert [each.name for each in answer.setups][:3] == ["native", "yarn", "fifo"]
    for setup in answer.setups:
        cluster, root = setup.cluster, next(pool for pool in setup.pools if pool.pool == ROOT_POOL)
        assert cluster.completed + cluster.failed + cluster.never_started + cluster.refused == answer.jobs
        assert root.operations == answer.jobs
        assert 0 < cluster.utilisation <= cluster.peak <= 1
        hours = cluster.makespan_ms / 3_600_000 * answer.capacity
        assert root.usage == pytest.approx(cluster.utilisation * hours, rel=1e-6)
        assert cluster.share_error < 0.05 or any(note.startswith(f"{setup.name}: while") for note in notes(answer))
