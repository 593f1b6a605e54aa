"""Advice: what a situation allows, errors that are those of real releases, and words that say why."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import unnoise as un
from unnoise.answers.advise import _errors, simulated_curve
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


def test_expected_errors_are_those_of_real_releases() -> None:
    """Simulated and real releases of the same counts: mean W1 within a third of each other; at 4ε it is not."""
    counts, number = np.array([1, 2, 3, 7, 40]), np.array([900, 300, 100, 20, 5])
    items = np.arange(number.sum())
    times = np.repeat(counts, number)
    rng = np.random.default_rng(1)

    def simulated(epsilon: float) -> float:
        runs = [_errors(falling(simulated_curve(counts, number, epsilon, rng)), counts, number)[1] for _ in range(60)]
        return float(np.mean(runs))

    real = []
    for _ in range(60):
        p = un.direct(items, counts=times, epsilon=0.5)
        real.append(_errors((p.support, p.mass * p.items), counts, number)[1])
    assert 0.67 < simulated(0.5) / float(np.mean(real)) < 1.5
    assert simulated(2.0) / float(np.mean(real)) < 0.6


@pytest.mark.statistical
def test_merged_known_sketches_err_as_foretold() -> None:
    """Three sites' sketches of a known domain, merged: errors are what advise shows, within a factor 1.6 and chance."""
    options = {"epsilon": 1, "items": 1500, "shape": "poisson:3", "trusted": False, "sites": 3, "domain": 2000}
    foretold = next(c for c in un.advise(**options, repetitions=8).candidates if c.name == "sketch, known domain")
    counts, number = Setting("hashed", 1.0, 1, 1500, shape="poisson:3").counts(None)
    times, found = np.repeat(counts, number), []
    for _ in range(8):
        sites = [un.Sketch.known(range(2000), epsilon=1) for _ in range(3)]
        for j, sketch in enumerate(sites):
            sketch.update(np.arange(times.size), times // 3 + (j < times % 3))
        for sketch in sites[1:]:
            sites[0].merge(sketch)
        p = un.reconstruct(sites[0].release())
        occur = p.support > 0
        found.append(_errors((p.support[occur], (p.mass * p.items)[occur]), counts, number))
    real, doubt = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(len(found))
    print(real, foretold.errors)
    for measured, spread, name in ((real[0], doubt[0], "l1"), (real[2], doubt[2], "distinct")):
        limit = 1.6 * np.exp(4 * np.sqrt(2) * spread / measured)  # both are means of eight errors of a long tail
        assert 1 / limit < measured / foretold.errors[name] < limit
    assert real[0] > 1.6 * un.advise(**{**options, "epsilon": 4}, repetitions=2).candidates[2].errors["l1"]  # control


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
