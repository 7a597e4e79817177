"""The search of Figure 1: when its answer is open."""

import pytest

from experiments import optimization


@pytest.mark.parametrize("least, final, epochs, reached, missed", [
    ([0.1, 1e-5], [None, 1e-5], 200, True, False),      # the best run decides
    ([2e-4, 3e-4], [2e-4, 3e-4], 200, None, None),
    ([2e-4, 3e-4], [2e-4, 3e-4], 400, False, True),
    ([0.1, 0.1], [None, None], 200, False, True)])      # there is no more to hope for
def test_a_miss_is_open_in_fewer_epochs_than_the_papers(least, final, epochs, reached,
                                                        missed):
    nets = [{"best": {"least": least, "final": final}}]
    assert optimization.reached(nets, epochs, 1e-4) is reached
    assert optimization.missed(nets, epochs, 1e-4) is missed
