"""Profile and Estimate: the contract of DESIGN 5 and 8."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawing_tools import noisy_profile
from unnoise.answers.estimate import Estimate
from unnoise.answers.profile import Profile
from unnoise.answers.reconstruct import reconstruct
from unnoise.errors import InputError
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile


@pytest.fixture(scope="module")
def counts():
    return np.random.default_rng(0).poisson(3, 20_000)


@pytest.fixture(scope="module")
def p(counts):
    return reconstruct(noisy_profile(np.random.default_rng(1), counts, DiscreteLaplace(1)), method="isotonic")


def test_a_profile_has_no_end_to_loop_to(p):
    with pytest.raises(TypeError, match="not iterable"):
        list(p)
    with pytest.raises(TypeError):
        3 in p  # noqa: B015


# ------------------------------------------------------------------------------------------------ Estimate


def test_an_estimate_is_a_float_in_arithmetic():
    e = Estimate(8.0, 1.0, 6.0, 10.0)
    assert (e + 1, 1 + e, e - 1, 1 - e, e * 2, 2 * e, e / 2, 16 / e, e**2, 2**e, -e, abs(e)) == (
        9, 9, 7, -7, 16, 16, 4, 2, 64, 256, -8, 8,
    )
    assert e // 3 == 2
    assert e % 3 == 2
    assert e + e == 16
    assert float(e) == 8.0
    assert int(e) == 8
    assert round(Estimate(8.26, 1, 6, 10), 1) == 8.3
    assert np.sqrt(Estimate(9.0, 1, 6, 10)) == 3
    assert np.float64(2) * e == 16
    assert np.array([1.0, 2.0]) @ np.array([e, e], dtype=float) == 24


def test_an_estimate_is_a_number_in_every_table():
    e = Estimate(8.0, 1.0, 6.0, 10.0)
    assert isinstance(e.value, float)
    assert type(e.value) is type(+e) is float
    for made in (pl.DataFrame({"what": ["total"], "v": [e]})["v"], pl.Series([e]), pl.Series([None, 1.0, e])):
        assert (made.dtype, made.to_list()[-1]) == (pl.Float64, 8.0)
    assert pd.Series([e]).tolist() == pa.array([e]).to_pylist() == json.loads(json.dumps([e])) == [8.0]


def test_an_estimate_is_changed_only_by_copying():
    e = Estimate(8.0, 1.0, 6.0, 10.0, kind="model")
    for change in (lambda: setattr(e, "low", 5.0), lambda: setattr(e, "value", 5.0), lambda: delattr(e, "low")):
        with pytest.raises(FrozenInstanceError):
            change()
    wider = e.replace(value=7.0, low=5.0)
    assert (wider.value, wider.low, wider.high, wider.kind) == (7, 5, 10, "model")
    for again in (copy.copy(e), copy.deepcopy(e), pickle.loads(pickle.dumps(e))):
        assert (again.to_dict(), repr(again)) == (e.to_dict(), repr(e))


def test_an_estimate_compares_and_formats_as_its_value():
    e = Estimate(1234.5, 1.0, 1200.0, 1300.0)
    assert e > 1000
    assert e >= 1234.5
    assert e < 2000
    assert e <= 1234.5
    assert e == 1234.5
    assert e != 3
    assert sorted([Estimate(3, 0, 3, 3), 1, 2])[-1] == 3
    assert f"{e:,.1f}" == "1,234.5"
    assert str(e) == "1,234 (1,200 to 1,300)"
    assert 1250 in e
    assert 1301 not in e
    assert hash(e) == hash(1234.5)


def test_an_estimate_without_its_data_keeps_its_level():
    e = Estimate(1.0, 1.0, 0.0, 2.0)
    assert e.at(0.95) is e
    with pytest.raises(InputError, match=r"level must be 0\.95"):
        e.at(0.5)
    with pytest.raises(InputError, match=r"between 0\.01 and"):
        e.at(1.5)


def test_an_estimate_says_of_which_kind_it_is_and_exports_it():
    e = Estimate(1.0, 1.0, 0.0, 2.0, kind="model", data_share=0.25, marked=True)
    assert (e.to_dict()["kind"], e.to_dict()["data_share"], e.to_dict()["marked"]) == ("model", 0.25, True)
    assert "too noisy to tell" in repr(e)
    assert "too noisy to tell" not in repr(Estimate(1.0, 1.0, 0.0, 2.0))
    with pytest.raises(InputError, match="kind must be one of robust, model, got 'magic'"):
        Estimate(1.0, 1.0, 0.0, 2.0, kind="magic")
    with pytest.raises(InputError, match="data_share must be between 0 and 1"):
        Estimate(1.0, 1.0, 0.0, 2.0, data_share=1.5)


# ------------------------------------------------------------------------------------------------ values


def test_values_are_functionals_of_the_reconstructed_profile(p):
    t = np.arange(p.fractions.size)
    assert p.fractions.sum() == pytest.approx(1)
    assert p.counts == pytest.approx(p.fractions * 20_000)
    assert p.total.value == pytest.approx((t * p.counts).sum())
    assert p.moment(2).value == pytest.approx((t**2 * p.counts).sum())
    assert p.distinct.value == pytest.approx(p.counts[1:].sum())
    assert p.at_least(4).value == pytest.approx(p.counts[4:].sum())
    assert p[3].value == pytest.approx(p.fractions[3])
    assert p.exactly(3).value == pytest.approx(p.counts[3])
    assert p.statistic(lambda h: np.minimum(h, 2)).value == pytest.approx((np.minimum(t, 2) * p.counts).sum())
    share = t[1:] / p.total.value
    assert p.entropy.value == pytest.approx(-(p.counts[1:] * share * np.log(share)).sum())
    assert p.quantile(0.5).value == np.searchsorted(np.cumsum(p.fractions), 0.5)
    assert p.moment(0) == p.distinct


def test_answers_are_near_the_truth(p, counts):
    assert p.total.low < counts.sum() < p.total.high
    assert p.distinct == pytest.approx((counts > 0).sum(), rel=0.02)
    assert abs(p.quantile(0.5) - np.median(counts)) <= 1


@pytest.mark.parametrize("method", ["isotonic", "likelihood", "linear", "paper"])
def test_every_interval_contains_its_value_and_widens_with_the_level(counts, method):
    q = reconstruct(noisy_profile(np.random.default_rng(2), counts, DiscreteLaplace(1)), method=method)
    asked = [q[0], q[3], q[500], q.at_least(2), q.distinct, q.total, q.entropy, q.moment(2), q.quantile(0.9),
             q.statistic(np.sqrt)]  # fmt: skip
    for e in asked:
        assert e.low <= e.value <= e.high
        assert e.stderr >= 0
        assert e.level == 0.95
        wide, narrow = e.at(0.99), e.at(0.5)
        assert (wide.level, narrow.level) == (0.99, 0.5)
        assert wide.high - wide.low >= narrow.high - narrow.low - 1e-9
        assert narrow.at(0.95).interval == pytest.approx(e.interval)


def test_entries_at_once_equal_single_entries(p):
    t = np.arange(12)
    together = p.entries(t)
    for i in t:
        assert (p[i].value, p[i].stderr, p[i].low, p[i].high) == pytest.approx([c[i] for c in together])
        assert p.interval(i) == pytest.approx((together.low[i], together.high[i]))
    assert p.interval(2, level=0.5)[0] > p.interval(2)[0]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-4, 15), min_size=1, max_size=30), st.sampled_from([1, 2]), st.floats(0.05, 1))
def test_quantile_is_the_smallest_count_that_reaches_q(noisy, power, q):
    profile = reconstruct(NoisyProfile.from_counts(noisy, epsilon=1, power=power), method="isotonic")
    e = profile.quantile(q)
    cumulative = np.cumsum(profile.fractions)
    assert cumulative[int(e)] >= q - 1e-9
    assert e == 0 or cumulative[int(e) - 1] < q
    assert e.low <= e <= e.high


def test_quantile_of_far_counts_is_covered_by_its_interval():
    """Scattered large counts: the quantile may lie where no noisy count does."""
    rng = np.random.default_rng(3)
    counts = np.sort(rng.integers(0, 10**6, 300))
    hits = 0
    for seed in range(20):
        profile = noisy_profile(np.random.default_rng(seed), counts, DiscreteLaplace("0.1"))
        e = reconstruct(profile, method="isotonic").quantile(0.5)
        hits += e.low <= counts[149] <= e.high
    assert hits >= 15  # P(Binomial(20, 0.95) < 15) = 3e-4 at the nominal level; with these seeds 20


def test_table_rows_partition_and_add_up(p):
    table = p.table([1, 2, 3, 5, 10])
    assert [row.label for row in table] == ["1", "2", "3–4", "5–9", "10+"]
    assert sum(row.items.value for row in table) == pytest.approx(p.distinct.value)
    assert table[0].at_least.value == pytest.approx(p.distinct.value)
    assert table[2].share.value == pytest.approx(p.fractions[3:5].sum())
    assert len(table) == 5
    text = str(table)
    assert "3–4" in text
    assert "95 % interval" in text
    assert table._repr_html_().count("<tr>") == 6
    assert json.dumps(table.to_dict())


# ------------------------------------------------------------------------------------------------ limits


def test_counts_near_a_trillion_stay_sparse():
    noisy = NoisyProfile.from_counts([10**12, 10**12 + 7, 1, 2, 0, 0, 1, -1], epsilon=1)
    p = reconstruct(noisy, method="isotonic")
    with pytest.raises(InputError, match="use support and mass"):
        _ = p.fractions
    with pytest.raises(InputError, match="use support and mass"):
        _ = p.counts
    assert p.total == pytest.approx(2e12, rel=1e-6)
    assert 2 * 10**12 in Estimate(0, 0, p.total.low - 20, p.total.high + 20)
    assert p.at_least(10**11) == pytest.approx(2)
    assert p.quantile(1.0) == pytest.approx(10**12, rel=1e-9)
    assert "Profile" in str(p)


@pytest.mark.parametrize("bad", [-1, 1.5, "a", None, [], [3, 5], True, 2**63, 10**30])
def test_what_is_not_a_count_is_refused(p, bad):
    for question in (p.__getitem__, p.at_least, p.exactly, p.interval):
        with pytest.raises(InputError, match="count must be an integer between 0 and"):
            question(bad)
    if bad != [3, 5]:
        with pytest.raises(InputError, match="counts must be integers between 0 and"):
            p.entries(bad)


def test_other_bad_questions_are_refused(p):
    for q in (0, -0.1, 1.1, "x"):
        with pytest.raises(InputError, match="q must be"):
            p.quantile(q)
    for q in (-1, "2", np.nan):
        with pytest.raises(InputError, match="q must be"):
            p.moment(q)
    with pytest.raises(InputError, match="longest must be"):
        p.shown(1)
    with pytest.raises(InputError, match="g must be a function"):
        p.statistic(3)
    with pytest.raises(InputError, match="grow slower"):
        p.statistic(lambda t: 2.0**t)
    with pytest.raises(InputError, match="level must be"):
        p.interval(1, level=0)


def test_a_declared_bound_leaves_nothing_above_it(counts):
    noisy = noisy_profile(np.random.default_rng(4), np.minimum(counts, 5), DiscreteLaplace(1))
    p = reconstruct(noisy, method="isotonic", max_count=5)
    assert p.support[-1] <= 5
    assert p.at_least(6).interval == (0, 0)


def test_a_sampled_sketch_answers_for_the_whole_domain():
    rng = np.random.default_rng(5)
    counts = rng.poisson(3, 40_000)
    sample = counts[rng.random(counts.size) < 0.25]
    noisy = noisy_profile(rng, sample, DiscreteLaplace(1))
    layout = Layout(kind="sampled", cells=sample.size, domain=40_000, rate=Fraction(1, 4), hash_seed=0)
    p = reconstruct(
        NoisyProfile.from_tally(noisy.values, noisy.tally, noise=noisy.noise, layout=layout), method="isotonic"
    )
    assert p.cells == sample.size
    assert p.items == 40_000
    assert p.counts.sum() == pytest.approx(40_000)
    assert p.total.low < counts.sum() < p.total.high
    assert p.total.stderr > (40_000 / sample.size) * reconstruct(noisy, method="isotonic").total.stderr


# ------------------------------------------------------------------------------------------------ showing


def test_it_prints_as_a_table_a_person_can_read(p):
    text = str(p)
    assert repr(p) == text
    for word in ("distinct items", "occurrences", "95 % interval", "count t", "ε = 1", "20,000 cells", "isotonic"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 24


def test_html_escapes_and_holds_the_same_numbers(p):
    html = p._repr_html_()
    assert html.count("<table") == 2
    assert "distinct items" in html


def test_exports_agree(p):
    arrow, polars, pandas = p.to_arrow(), p.to_polars(), p.to_pandas()
    names = ["count", "items", "low", "high", "stderr", "share", "share_low", "share_high"]
    assert arrow.column_names == names
    assert polars.columns == names
    assert list(pandas.columns) == names
    assert polars["count"].to_list() == p.support.tolist()
    assert np.allclose(pandas["share"], p.mass)
    for name in ("low", "high"):  # one unit each
        assert np.allclose(pandas[name], pandas[f"share_{name}"] * 20_000)
    assert (pandas["low"] <= pandas["items"]).all()
    assert (pandas["items"] <= pandas["high"]).all()
    assert np.allclose(arrow["items"].to_numpy(), p.mass * 20_000)
    data = json.loads(p.to_json())
    assert data["answers"]["total"]["value"] == pytest.approx(p.total.value)
    assert data["epsilon"] == 1
    assert data["entries"]["count"] == p.support.tolist()
    assert data["diagnostics"]["claim"]["verdict"] == "as claimed"
    assert data == json.loads(json.dumps(p.to_dict()))


def test_a_profile_keeps_what_it_was_made_from(p):
    assert p.noisy.cells == p.cells == 20_000
    assert p.method == "isotonic"
    assert p.diagnostics["claim"]["available"]


def test_a_subclass_changes_every_answer_through_its_bands(p):
    class Twice(Profile):
        def _bands(self, lo, hi, level):
            return type(super()._bands(lo, hi, level))(*(2 * c for c in super()._bands(lo, hi, level)))

    twice = Twice(p.support, p.mass, p.method, p.noisy)
    assert twice.distinct.stderr == pytest.approx(2 * p.distinct.stderr)
    assert twice.table()[1].items.stderr == pytest.approx(2 * p.table()[1].items.stderr)


def test_a_table_is_exported_in_one_unit(p):
    table = p.table([1, 2, 5])
    arrow, polars, pandas = table.to_arrow(), table.to_polars(), table.to_pandas()
    assert arrow.column_names == polars.columns == list(pandas.columns)
    assert polars["first"].to_list() == [1, 2, 5]
    assert polars["last"].to_list() == [1, 4, None]
    assert polars["items"].to_list() == pytest.approx([float(row.items) for row in table])
    assert (polars["items_low"] <= polars["items"]).all()
    assert np.allclose(polars["share"].to_numpy() * 20_000, polars["items"].to_numpy())
    assert polars["at_least"][0] == pytest.approx(float(p.distinct))


def test_numbers_of_cells_are_whole_where_only_rounding_keeps_them_from_it():
    """The shares behind 147 of 1,000 cells once added up to 146.99999999999997."""
    rng = np.random.default_rng(0)
    share = -np.expm1(-1.0)
    noise = rng.geometric(share, 1000) - rng.geometric(share, 1000)
    profile = reconstruct((rng.geometric(0.2, 1000) - 1 + noise).tolist(), epsilon=1)
    assert all(float(number).is_integer() for number in profile.counts)
    assert all(profile.at_least(k).value.is_integer() and profile.exactly(k).value.is_integer() for k in range(1, 20))
    assert profile.total.value.is_integer()
