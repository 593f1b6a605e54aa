"""un.load and un.reconstruct: a sketch, its file, what it released and a histogram all lead to the same profile."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import unnoise as un


@pytest.fixture
def sketch(tmp_path):
    made = un.Sketch.known(500, epsilon=2)
    made.update(np.repeat(np.arange(300), 3))
    made.save(tmp_path / "s.sketch")
    return made


def masses(profile):
    return dict(zip(profile.support.tolist(), profile.mass.tolist()))


def test_a_sketch_its_file_and_its_release_are_one(sketch, tmp_path):
    path = tmp_path / "s.sketch"
    loaded = un.load(path)
    assert isinstance(loaded, un.Sketch)
    expected = masses(un.reconstruct(loaded.release(), method="isotonic"))
    for given in (un.load(path), path, str(path)):
        assert masses(un.reconstruct(given, method="isotonic")) == expected


def test_a_histogram_may_be_a_file(tmp_path):
    counts = np.random.default_rng(0).poisson(2, 400)
    np.save(tmp_path / "h.npy", counts)
    direct = un.reconstruct(counts, epsilon=20, method="isotonic")
    assert masses(un.reconstruct(tmp_path / "h.npy", epsilon=20, method="isotonic")) == masses(direct)
    with pytest.raises(un.InputError, match="epsilon is required"):
        un.reconstruct(tmp_path / "h.npy")


def test_power_is_part_of_the_law():
    counts = np.random.default_rng(0).poisson(2, 400) + un.discrete_laplace(400, 1, power=2)
    twice = un.reconstruct(counts, epsilon=1, power=2, method="isotonic")
    whole = un.reconstruct(counts, noise=un.DiscreteLaplace(1, 2), method="isotonic")
    assert masses(twice) == masses(whole) != masses(un.reconstruct(counts, epsilon="1/2", method="isotonic"))
    with pytest.raises(un.InputError, match="power must agree"):
        un.reconstruct(un.NoisyProfile.from_counts(counts, epsilon=1), power=2)


def test_groups_are_loaded_and_reconstructed_one_by_one(tmp_path):
    groups = un.GroupedSketch(["a", "b"], lambda: un.Sketch.known(50, epsilon=5))
    groups.update({"item": [1, 2, 3], "group": ["a", "b", "a"]}, group="group")
    groups.save(tmp_path / "g.sketches")
    loaded = un.load(tmp_path / "g.sketches")
    assert isinstance(loaded, un.GroupedSketch)
    for given in (loaded, tmp_path / "g.sketches"):
        with pytest.raises(un.InputError, match="group by group"):
            un.reconstruct(given)


def test_python_m_unnoise_is_the_command_line():
    found = subprocess.run([sys.executable, "-m", "unnoise", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout == f"unnoise {un.__version__}\n"
