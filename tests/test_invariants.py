"""Rules that every answer keeps, whatever comes in (`make audit-invariants` runs ten thousand, up to 2¹⁷ cells)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "audits"))

from _rules import broken, check, draw

from unnoise.answers.reconstruct import reconstruct
from unnoise.estimators.linear import step_response

RUNS = 300
BATCH = 30
MOST = 10
"""Log₂ of the cells at most, to keep it quick."""

pytestmark = [pytest.mark.filterwarnings("ignore::unnoise.errors.UnnoiseWarning"), pytest.mark.slow]


@pytest.mark.parametrize("batch", range(RUNS // BATCH))
def test_no_rule_is_broken(batch):
    """Random kind × ρ × ε × cells × shape; the seeds are fixed, so a failure is a finding and not bad luck."""
    found = []
    for run in range(BATCH):
        case = draw(np.random.default_rng([7, batch, run]), MOST)
        found += [f"{case}: {each}" for each in check(case)[0]]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("batch", range(2))
def test_no_rule_is_broken_where_no_float_holds_what_undoes_the_noise(batch):
    """Hundreds of merges, or ε of a thousandth: 365 days at ε = 0.1 had ended in an OverflowError."""
    found, beyond = [], 0
    for run in range(BATCH):
        case = draw(np.random.default_rng([11, batch, run]), MOST, beyond=True)
        beyond += step_response(case.noisy.noise) is None
        found += [f"{case}: {each}" for each in check(case)[0]]
    assert not found, "\n".join(found)
    assert beyond >= BATCH / 10


def test_noise_far_below_zero_in_few_cells_is_no_fault():
    """Found by the audit: a cell of a level lies further below 0 than the counts of its items go."""
    case = draw(np.random.default_rng([1, 190, 0]), 17)
    assert int(case.noisy.counts.min()) < -int(case.truth.max())
    assert check(case)[0] == []


@pytest.mark.parametrize("run", [(1, 47, 47), (1, 56, 32), (1, 77, 28), (1, 185, 30), (3, 69, 34), (4, 24, 22)])
def test_what_missed_by_far_in_the_audit_no_longer_does(run):
    """An atom beside the count asked for, three combs in shared cells, ones that nineteen noises hide, three points."""
    assert check(draw(np.random.default_rng(run), 17))[0] == []


def test_a_cap_that_the_light_levels_show_is_found():
    """8,311 items of 100 were told as 97 to 102, for the level that is fullest says nothing of them."""
    case = draw(np.random.default_rng([3, 177, 29]), 17)
    assert check(case)[0] == []
    at_cap = reconstruct(case.noisy).exactly(100)
    assert at_cap.low <= int((case.truth == 100).sum()) <= at_cap.high


def test_neighbouring_single_counts_are_told_apart():
    """Items of 21, 155 and 156 occurrences in shared cells: 155, and sums of two, had stood for them."""
    case = draw(np.random.default_rng([77, 29]), 12)
    assert sorted(set(case.truth.tolist())) == [21, 155, 156]
    assert check(case)[0] == []


def test_broken_rules_are_found():
    """Negative controls: a profile of other cells, and one whose items are doubled."""
    case = draw(np.random.default_rng([7, 0, 3]), MOST)
    while case.kind != "hashed" or case.shape != "smooth" or case.power > 3 or case.epsilon < 1:
        case = draw(np.random.default_rng([8, case.cells, case.power, len(case.truth)]), MOST)
    profile = reconstruct(case.noisy)
    assert broken(case, profile) == []
    doubled = replace(profile, number=2 * profile.number)
    assert any("is not total" in each for each in broken(case, doubled))
    elsewhere = replace(case, truth=np.repeat(case.truth, 50))
    assert any("widths" in each for each in broken(elsewhere, profile))
