"""misfit: p-values are high where a family fits, and low where none does."""

from __future__ import annotations

import numpy as np
import pytest

from test_engine_smooth import noised
from unnoise.errors import ConvergenceError, InputError
from unnoise.estimators.misfit import misfit


@pytest.mark.parametrize("seed", range(3))
def test_families_that_fit_are_not_rejected(seed):
    rng = np.random.default_rng(seed)
    found = misfit(noised(rng.geometric(0.1, 3000) - 1, 1, seed), draws=19)
    assert found.p_value > 0.05
    assert found.gap > 0


def test_a_pattern_without_its_family_is_rejected(monkeypatch):
    """Multiples of 5 fit walks over multiples and the family of patterns; without both nothing is good enough."""
    noisy = noised(5 * (np.random.default_rng(0).geometric(0.1, 5000) - 1), 0.5)
    assert misfit(noisy, draws=19).p_value > 0.05
    monkeypatch.setattr("unnoise.estimators.auto.likely_strides", lambda *cells: [])
    monkeypatch.setattr("unnoise.engine.search.likely_periods", lambda channel, mass: [])
    assert misfit(noisy, draws=19).p_value == 1 / 20


def test_where_auto_answers_by_multiples_these_are_tested():
    """20, 40, …, 600 as often: over single counts no family is good enough (p = 1/20), over multiples one is."""
    rng = np.random.default_rng(0)
    assert misfit(noised(20 * rng.integers(1, 31, 6000), 0.1), draws=19).p_value > 0.05


def test_what_it_refuses():
    with pytest.raises(InputError, match="power 1, got 2"):
        misfit(noised([1, 2, 3], 1, power=2))
    with pytest.raises(InputError, match="draws must be"):
        misfit(noised([1] * 50, 1), draws=0)
    with pytest.raises(ConvergenceError, match="close together"):
        misfit(noised([1, 10**6], 1))
