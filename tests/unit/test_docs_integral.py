"""docs/how-to/integral-guarantees.md: its figures are those that come out, its pictures are drawn, and the real run did what it says."""

from __future__ import annotations

import re

import pytest

from docs.pictures.build import pictures_of
from docs.pictures.integral_guarantees import FOLDER, PAGE, PICTURES, filled, history, one_machine
from tests.support.integral_day import PRODUCTION, RESEARCH

TEXT = PAGE.read_text()


@pytest.mark.long
def test_every_figure_of_the_page_comes_out_again() -> None:
    assert filled(TEXT) == TEXT, "run: python docs/pictures/integral_guarantees.py --page"


def test_every_picture_of_the_built_page_is_drawn_and_every_one_drawn_is_shown() -> None:
    assert sorted(pictures_of(TEXT)) == sorted(f"{FOLDER.name}/{name}.svg" for name in PICTURES)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", TEXT):
        assert (PAGE.parent / target).exists(), target
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.+)$", TEXT, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors


@pytest.mark.long
def test_the_pictures_of_the_days_show_what_the_captions_say() -> None:
    """Production has what it asks for all the time; research on average half of the cluster."""
    for point in history(PRODUCTION).points:
        assert point.fair_share.mean == point.demand.mean
        assert point.integral is not None
        assert point.integral.volume is not None
        assert point.integral.volume.most <= point.integral.capacity
    research = history(RESEARCH).points
    second_day = [point.fair_share.mean / 100 for point in research[len(research) // 2 :]]
    assert abs(sum(second_day) / len(second_day) - 1_000) < 15


def test_the_real_run_took_its_burst_ran_out_and_fell_back_to_the_flow() -> None:
    points = [
        point for point in one_machine().points if point.integral is not None and point.integral.volume is not None
    ]
    saved = [point.integral.volume.last / 100 for point in points if point.integral and point.integral.volume]
    owed = [point.fair_share.mean / 100 for point in points]
    full, empty = saved.index(max(saved)), len(saved) - 1 - saved[::-1].index(min(saved[saved.index(max(saved)) :]))

    assert {(point.integral.flow, point.integral.burst) for point in points if point.integral} == {(100.0, 300.0)}
    assert max(saved) == 30
    assert max(point.usage.most for point in points) == 300
    assert max(owed[:full]) == 0
    assert max(owed) == 3
    assert points[empty].demand.mean > 0
    assert abs(owed[empty] - 1) < 0.05
    assert points[-1].demand.mean == 0
    assert saved[-1] > saved[empty]
