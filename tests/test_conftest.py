"""What all tests share: noise that is the same every time, whichever test asks for it first."""

import multiprocessing
import os

import pytest

from conftest import REPEATABLE, repeatable_noise
from unnoise import discrete_laplace

pytestmark = pytest.mark.skipif(not REPEATABLE, reason="UNNOISE_EXPLORE looks for new noise")


def noise(size=64):
    return discrete_laplace(size, epsilon=0.1).tolist()


def test_noise_is_the_same_for_a_name_and_another_for_each_stream_and_name():
    found = []
    for name in ("one", "one", "two"):
        with repeatable_noise(name):
            found.append((noise(), noise()))
    assert found[0] == found[1] != found[2]
    assert found[0][0] != found[0][1]


def test_a_child_and_a_test_with_entropy_of_its_own_do_not_get_it(monkeypatch):
    with repeatable_noise("child"), multiprocessing.get_context("fork").Pool(1) as pool:
        theirs, ours = pool.apply(noise), noise()
    assert theirs != ours
    with repeatable_noise("own"):
        monkeypatch.setattr(os, "urandom", bytes)
        assert noise() == noise()
