"""Advice: what a situation allows, errors that are those of real releases, and words that say why."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import unnoise as un
from statistics_tools import differ
from unnoise.answers.advise import ERRORS, _errors, _errs, _setting, simulated_curve
from unnoise.answers.simulate import Setting
from unnoise.errors import InputError
from unnoise.estimators.falling import falling

FAST = {"items": 1500, "repetitions": 1, "shape": "poisson:3"}


def test_a_trusted_holder_of_one_release_needs_no_sketch() -> None:
    found = un.advise(epsilon=1, **FAST)
    assert found.model == "direct"
    assert "A sketch is the wrong tool here" in found.why
    direct, sketch = found.candidates
    assert direct.errors["l1"] < sketch.errors["l1"]
    assert "→ direct" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["model"] == "direct"


@pytest.mark.parametrize(
    ("situation", "model", "words"),
    [
        ({"updates": True}, "sketch", "every release would cost ε anew"),
        ({"trusted": False, "sites": 4}, "sketch", "nobody may hold all rows"),
        ({"updates": True, "domain": 1600, "repetitions": 12}, "sketch, known domain", "no collisions"),
        ({"trusted": False, "sites": 30, "two_servers": True}, "two servers", "Two noises"),
        ({"published": True, "domain": 2000}, "histogram", "are out"),
    ],
)
def test_the_situation_decides(situation: dict, model: str, words: str) -> None:
    found = un.advise(epsilon=1, **{**FAST, **situation})
    assert found.model == model, str(found)
    assert words in str(found)
    assert "wrong tool" not in found.why


@pytest.mark.statistical
def test_expected_errors_are_those_of_real_releases() -> None:
    """W1 of simulated and of real releases of the same counts is of one law; at 4ε it is not."""
    counts, number = np.array([1, 2, 3, 7, 40]), np.array([900, 300, 100, 20, 5])
    items = np.arange(number.sum())
    times = np.repeat(counts, number)
    rng = np.random.default_rng(1)

    def simulated(epsilon: float) -> list[float]:
        return [_errors(falling(simulated_curve(counts, number, epsilon, rng)), counts, number)[1] for _ in range(40)]

    real = []
    for _ in range(40):
        p = un.direct(items, counts=times, epsilon=0.5)
        real.append(_errors((p.support, p.mass * p.items), counts, number)[1])
    assert not differ(simulated(0.5), real)
    assert differ(simulated(2.0), real)


@pytest.mark.statistical
def test_merged_known_sketches_err_as_foretold() -> None:
    """Three sites' sketches of a known domain, merged: their errors and those advise is a mean of are of one law.

    Control: those it foretells for 4ε are not.
    """
    options = {"items": 1500, "shape": "poisson:3", "trusted": False, "sites": 3, "domain": 2000}
    name, rng = "sketch, known domain", np.random.default_rng(1)

    def simulated(epsilon: float) -> list[dict[str, float]]:
        setting = _setting(name, epsilon, 1500, "poisson:3", None, 2000, 3)
        return [dict(zip(ERRORS, _errs(name, setting, rng))) for _ in range(40)]

    counts, number = Setting("hashed", 1.0, 1, 1500, shape="poisson:3").counts(None)
    times, real = np.repeat(counts, number), []
    for _ in range(40):
        sites = [un.Sketch.known(range(2000), epsilon=1) for _ in range(3)]
        for j, sketch in enumerate(sites):
            sketch.update(np.arange(times.size), times // 3 + (j < times % 3))
        for sketch in sites[1:]:
            sites[0].merge(sketch)
        p = un.reconstruct(sites[0].release())
        occur = p.support > 0
        real.append(_errors((p.support[occur], (p.mass * p.items)[occur]), counts, number))
    foretold, other = simulated(1.0), simulated(4.0)
    for index, error in ((0, "l1"), (2, "distinct")):
        assert not differ([one[error] for one in foretold], [one[index] for one in real])
    assert differ([one["l1"] for one in other], [one[0] for one in real])
    said = next(c for c in un.advise(epsilon=1, **options, repetitions=4).candidates if c.name == name)
    for error, mean in said.errors.items():  # of a fixed seed, as are those it is compared with
        assert min(one[error] for one in foretold) < mean < max(one[error] for one in foretold)


def test_cells_are_as_many_as_the_noise_of_a_candidate_allows() -> None:
    """Σ t²/σ²: 20,000 items seen twice behind 20 noises and behind 2; those that are asked for instead."""
    options = {"epsilon": 1, "items": 20_000, "shape": {2: 1}, "trusted": False, "sites": 20, "repetitions": 1}
    cells = {c.name: c.cells for c in un.advise(**options).candidates}
    assert cells == {"direct": None, "sketch": 1 << 12, "two servers": 1 << 15}  # 80,000 / 36.8 and / 3.68
    assert {c.cells for c in un.advise(**options, cells=1024).candidates} == {None, 1024}


@pytest.mark.parametrize(("sites", "model"), [(2, "sketch"), (3, "two servers"), (4, "two servers")])
def test_luck_does_not_choose_between_more_noises_and_fewer(sites: int, model: str) -> None:
    """At two sites both ways are the same noises: equal figures, and the one that trusts nobody."""
    situation = {"trusted": False, "sites": sites, "two_servers": True, "repetitions": 1}
    for seed in range(5):
        found = un.advise(epsilon=1, items=500, **situation, seed=seed)
        assert found.model == model, str(found)
        errors = {c.name: c.errors for c in found.candidates}
        assert (errors["sketch"] == errors["two servers"]) == (sites == 2)


def test_what_the_figures_are_means_of_and_whom_a_sketch_of_sent_rows_trusts() -> None:
    found = un.advise(epsilon=1, items=300, sites=3, repetitions=2)
    assert "means of 2 simulated releases" in str(found)
    assert {c.name: c.trusts for c in found.candidates}["sketch"] == "the holder"
    assert {c.name: c.trusts for c in un.advise(epsilon=1, **FAST).candidates}["sketch"] == "nobody"


def test_hopeless_settings_are_called_so() -> None:
    found = un.advise(epsilon=0.05, items=200, shape="ones", trusted=False, sites=12, repetitions=2)
    assert "hardly told" in found.why or "refused" in found.why


def test_where_nothing_tells_a_holder_still_needs_no_sketch() -> None:
    """One item at ε = 0.05: all errors are of the order of the noise, and a sketch was advised by the luck of it."""
    found = un.advise(epsilon=0.05, items=1, repetitions=2)
    assert found.model == "direct"
    assert "hardly told" in found.why
    errors = {c.name: c.errors["l1"] for c in found.candidates}
    assert ("wrong tool" in found.why) == (errors["sketch"] > errors["direct"])


def test_luck_sends_no_holder_of_the_rows_to_a_sketch() -> None:
    """At ε = 0.1 a sketch of a hundred items errs 1.6 times as much, and three releases spoke for it."""
    for seed in range(9):
        found = un.advise(epsilon=0.1, items=100, seed=seed)
        assert found.model == "direct", str(found)
        direct, sketch = found.candidates
        assert ("wrong tool" in found.why) == (direct.errors["l1"] < sketch.errors["l1"])
        if "wrong tool" not in found.why:
            assert "may be the luck of so few releases" in found.why
        assert all(0 < c.doubt[error] < 5 for c in found.candidates for error in ERRORS)
        assert f"{direct.errors['l1']:.2g} ± {direct.doubt['l1']:.1g}" in str(found)


def test_more_than_luck_may_speak_for_a_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates whose errors are known: less by 0.2 to 0.4 in every release is beyond luck, in two of three is not."""
    errors = {"direct": [0.9, 0.8, 1.0], "sketch": [0.7, 0.5, 0.6]}

    def told(name: str, _: object, rng: np.random.Generator) -> list[float]:
        return [next(left[name]), 1.0, 0.1]

    monkeypatch.setattr("unnoise.answers.advise._errs", told)
    for second, model in ((0.5, "sketch"), (0.95, "direct")):
        errors["sketch"][1] = second
        left = {name: iter(each) for name, each in errors.items()}
        assert un.advise(epsilon=1, items=50).model == model


def test_bad_requests() -> None:
    for options in ({"items": 0}, {"items": 10, "sites": 0}, {"items": 10, "epsilon": 0}):
        with pytest.raises(InputError, match="must be"):
            un.advise(**{"epsilon": 1, **options})


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    from unnoise.cli import main

    arguments = ["-e", "1", "--items", "1500", "--shape", "poisson:3", "--repetitions", "1", "--updates", "--json"]
    monkeypatch.setattr(sys, "argv", ["unnoise", "advise", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert json.loads(capsys.readouterr().out)["model"] == "sketch"
