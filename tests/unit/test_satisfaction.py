"""What an element is owed, prepared once, gives the same figures as the plain rule."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.resources import RESOURCE_NAMES, Resources, Share
from headrace.satisfaction import Owed, local_satisfaction

#: Some more than once, so that shares and demands are often equal, or nothing.
shares = st.tuples(*[st.sampled_from([0.0, 1e-10, 0.1, 0.25, 1 / 3, 1.0])] * 5)
amounts = st.builds(Resources, *[st.sampled_from([0, 1, 3, 1000, 7 * 2**40])] * 5)


@given(amounts, amounts, shares, shares, st.sampled_from(RESOURCE_NAMES))
@example(Resources(1), Resources(0), (0.0, 1.0, 0.0, 0.0, 0.0), (1.0,) * 5, "cpu")
def test_satisfaction_is_that_of_the_plain_rule_to_the_last_bit(
    held: Resources, total: Resources, fair: Share, demand: Share, dominant: str
) -> None:
    owed, share = Owed.of(fair, demand, dominant, total), held.share_of(total)
    index = RESOURCE_NAMES.index(dominant)

    assert owed.place(held) == (local_satisfaction(share, fair, demand), share[index] - fair[index])
