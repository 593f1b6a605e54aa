"""The states of a sketch: what seals it, what merges, what leaves, each rule with an attempt to break it."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sketch_tools import make, refused, state_of
from statistics_tools import one_noise
from unnoise import testing
from unnoise.errors import IncompatibleError, InputError, PrivacyError, SealedError
from unnoise.noise import DiscreteLaplace
from unnoise.sketches.sketch import Sketch, noise_shares

# ── merging ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sketch_does_not_merge_with_itself() -> None:
    sketch = make()
    refused(PrivacyError, "noise identities must be disjoint", lambda: sketch.merge(sketch), sketch)
    refused(PrivacyError, "noise identities must be disjoint", lambda: sketch + sketch, sketch)


def test_the_same_file_does_not_merge_twice(tmp_path: Path) -> None:
    sketch, other = make(), make()
    sketch.save(tmp_path / "a")
    one, two = Sketch.load(tmp_path / "a"), Sketch.load(tmp_path / "a")
    refused(PrivacyError, "noise identities", lambda: one.merge(two), one, two)
    refused(PrivacyError, "noise identities", lambda: one.merge(sketch), one, sketch)
    other.merge(one)
    refused(PrivacyError, "noise identities", lambda: other.merge(two), other, two)


def test_epochs_of_one_file_do_not_merge(tmp_path: Path) -> None:
    make().save(tmp_path / "a")
    one, two = Sketch.load(tmp_path / "a"), Sketch.load(tmp_path / "a")
    one.begin_epoch()
    two.begin_epoch()
    refused(PrivacyError, "noise identities", lambda: one.merge(two), one, two)


def test_a_sketch_merged_into_two_others_does_not_come_together_again() -> None:
    shared, left, right = make(), make(), make()
    shared.release()
    left.merge(shared)
    right.merge(shared)
    refused(PrivacyError, "noise identities", lambda: left.merge(right), left, right)


DIFFERENT: list[tuple[str, Sketch, Sketch]] = [
    ("kind", Sketch.hashed(4, epsilon=1), Sketch.known(4, epsilon=1)),
    ("cells", Sketch.hashed(4, epsilon=1), Sketch.hashed(8, epsilon=1)),
    ("epsilon", make(), make(epsilon="1/2")),
    ("levels", make(), make(levels=4)),
    ("hash_seed", make(), make(hash_seed=1)),
    ("item_types", make(item_types=["int"]), make(item_types=["str"])),
    ("item_types", make(item_types=["int"]), make(item_types=["int", "int"])),
    ("max_contributions", make(epsilon=1, max_contributions=1), make(epsilon=2, max_contributions=2)),
    ("max_contributions", make(), make(max_contributions=1)),
    ("pan_private", make(), make(pan_private=True)),
    ("fingerprint", Sketch.known(["a", "b"], epsilon=1), Sketch.known(["b", "a"], epsilon=1)),
    ("item_types", Sketch.known(["a", "b"], epsilon=1), Sketch.known([1, 2], epsilon=1)),
    ("fingerprint", Sketch.known([0, 1], epsilon=1), Sketch.known(2, epsilon=1)),
    ("rate", Sketch.sampled(1, rate=1, epsilon=1), Sketch.sampled(1, rate="9999/10000", epsilon=1)),
]


@pytest.mark.parametrize(("field", "left", "right"), DIFFERENT, ids=[case[0] for case in DIFFERENT])
def test_different_parameters_do_not_merge(field: str, left: Sketch, right: Sketch) -> None:
    before = state_of(left), state_of(right)
    for one, two in ((left, right), (right, left)):
        with pytest.raises(IncompatibleError) as caught:
            one.merge(two)
        assert caught.value.field == field
        assert repr(caught.value.left) in str(caught.value)
        assert repr(caught.value.right) in str(caught.value)
    assert (state_of(left), state_of(right)) == before


def test_item_types_of_the_data_are_compared() -> None:
    numbers, texts = make(), make()
    numbers.update([123])
    texts.update(["123"])
    refused(IncompatibleError, "item_types must be equal to merge", lambda: numbers.merge(texts), numbers, texts)
    refused(InputError, "items must be of types int, got str", lambda: numbers.update(["123"]), numbers)


def test_only_sketches_merge() -> None:
    sketch = make()
    refused(InputError, "merge needs another sketch, got list", lambda: sketch.merge([1]), sketch)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sketch + 5


def test_a_merged_sketch_is_used_up() -> None:
    one, two, three = make(), make(), make()
    one.merge(two)
    both = one + three
    for sketch in (one, two, three):
        merging, updating = lambda s=sketch: both.merge(s), lambda s=sketch: s.update([1])
        for call in (sketch.release, sketch.begin_epoch, merging, updating):
            refused(PrivacyError, "merged into another and is used up", call, sketch, both)
        assert sketch._held.array().size == 0
    assert both.noise.power == 3


# ── sealing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_update_after_release_save_or_load(tmp_path: Path) -> None:
    released, saved = make(), make()
    released.release()
    saved.save(tmp_path / "a")
    for sketch in (released, saved, Sketch.load(tmp_path / "a")):
        for items in ([1], iter([1]), pl.Series(["a"])):
            refused(SealedError, "call begin_epoch", lambda s=sketch, i=items: s.update(i), sketch)
        assert sketch.sealed


def test_released_cells_never_change() -> None:
    sketch = make()
    first = sketch.release()
    before = first.counts.copy()
    with pytest.raises(ValueError, match="read-only"):
        first.counts[0] = 5
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.counts.flags.writeable = True
    assert (sketch.release().counts == before).all()
    sketch.begin_epoch()
    sketch.update([1, 2, 3])
    second = sketch.release().counts
    assert (first.counts == before).all()
    assert (second != before).any()


def test_every_snapshot_has_noise_of_its_own(tmp_path: Path) -> None:
    """The difference of two snapshots is data plus one whole fresh noise, never data alone."""
    sketch = Sketch.hashed(2**14, epsilon=1)
    first = sketch.release().counts
    sketch.begin_epoch()
    sketch.save(tmp_path / "a")
    second = Sketch.load(tmp_path / "a").release().counts
    assert one_noise(second - first, 1)
    assert not one_noise(second, 1), "the control: two of them are told from one"


def test_pan_private_adds_noise_when_leaving(tmp_path: Path) -> None:
    for leave in (lambda s: s.release(), lambda s: s.save(tmp_path / "a")):
        sketch = Sketch.hashed(2**12, epsilon=1, pan_private=True)
        seen = sketch._held.array().copy()
        leave(sketch)
        after = sketch.release()
        assert after.noise.power == 2
        assert one_noise(after.counts - seen, 1)
        assert not one_noise(after.counts, 1), "the control: that is two"
        assert len(sketch._identities) == 2


def test_failed_save_leaves_sketch_open_or_sealed(tmp_path: Path) -> None:
    sketch = make()
    for wrong in (tmp_path / "no" / "such" / "directory", tmp_path):
        with pytest.raises(OSError, match=r"must be (a file|in a folder that exists)"):
            sketch.save(wrong)
        assert not sketch.sealed
    sketch.update([1])


# ── copies and processes ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps, lambda s: copy.deepcopy([s])])
def test_no_copies(copier: Callable[[Sketch], Any]) -> None:
    sketch = make()
    refused(PrivacyError, "must not be copied or pickled", lambda: copier(sketch), sketch)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        refused(PrivacyError, "must not be copied", lambda p=protocol: pickle.dumps(sketch, p), sketch)


FORK = """
import os, sys
from unnoise.sketches.sketch import Sketch
from unnoise.errors import PrivacyError
live, other, public = (Sketch.hashed(64, epsilon=1) for _ in range(3))
public.release()
child = os.fork()
if child == 0:
    calls = [lambda: live.update([1]), live.release, lambda: live.save(sys.argv[1]), live.begin_epoch,
             lambda: public.merge(live), lambda: live.merge(public), lambda: live + public]
    refused = 0
    for call in calls:
        try:
            call()
        except PrivacyError as error:
            refused += "this is a fork of it" in str(error)
    public.release()
    public.begin_epoch()
    public.update([1])
    os._exit(0 if refused == len(calls) and not os.path.exists(sys.argv[1]) else 1)
_, status = os.waitpid(child, 0)
live.update([1])
live.release()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_live_sketch_is_dead_in_a_forked_child(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORK, str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


# ── noise that is none ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("context", [testing.noiseless, lambda: testing.seeded(1)])
def test_test_noise_is_never_private(context: Callable[[], Any], tmp_path: Path) -> None:
    path = tmp_path / "a"
    with context():
        sketch = make()
    assert "for tests" in repr(sketch)
    assert sketch.guarantee.startswith("NO GUARANTEE")
    for call in (sketch.release, lambda: sketch.save(path)):
        refused(PrivacyError, "needs noise from the operating system", call, sketch)
    honest = make()
    honest.merge(sketch)
    sketch = honest
    for call in (sketch.release, lambda: sketch.save(path)):
        refused(PrivacyError, "needs noise from the operating system", call, sketch)
    sketch.begin_epoch()
    refused(PrivacyError, "needs noise from the operating system", sketch.release, sketch)
    assert not path.exists()


def test_test_noise_in_an_epoch_or_at_release_is_noticed(tmp_path: Path) -> None:
    later, leaving, limited = make(), make(pan_private=True), make(max_contributions=1)
    with testing.noiseless():
        later.begin_epoch()
        limited.update([1], person=[1])
        with pytest.raises(PrivacyError, match="noise off for tests"):
            leaving.release()
    for sketch in (later, leaving, limited):
        with pytest.raises(PrivacyError, match="noise off for tests"):
            sketch.release()
        with pytest.raises(PrivacyError, match="noise off for tests"):
            sketch.save(tmp_path / "a")


# ── shares ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_shares_stay_secret_until_enough_are_merged(tmp_path: Path) -> None:
    power = noise_shares(5, survivors=3)
    assert power == Fraction(1, 3)
    shares = [make(power=power) for _ in range(5)]
    really = f"ε = {DiscreteLaplace(1, power).actual_epsilon:.3g} per occurrence, not 1"
    assert "NOT YET REACHED" in shares[0].guarantee
    for call in (shares[0].release, lambda: shares[0].save(tmp_path / "a")):
        refused(PrivacyError, really, call, shares[0])
    two = shares[0] + shares[1]
    refused(PrivacyError, "needs power ≥ 1 of noise that has not left yet, got 2/3", two.release, two)
    three = two + shares[2]
    assert three.release().noise == DiscreteLaplace(1)
    assert not (tmp_path / "a").exists()


def test_a_share_merged_into_something_public_is_still_secret() -> None:
    """Power 4/3 in all, but one whole noise of it is public: subtract it and the share stands alone."""
    public, share = make(), make(power=Fraction(1, 3))
    public.release()
    public.merge(share)
    assert public.noise.power == Fraction(4, 3)
    refused(PrivacyError, "got 1/3", public.release, public)
    public.merge(make(power=Fraction(2, 3)))
    assert public.release().noise.power == 2


def test_shares_must_be_possible() -> None:
    with pytest.raises(InputError, match="survivors must be between 1 and parties=3, got 4"):
        noise_shares(3, survivors=4)


# ── different noise everywhere ────────────────────────────────────────────────────────────────────────────────────────


def test_no_two_stretches_of_cells_have_the_same_noise() -> None:
    size, window = 2**18, 64
    pieces = [make().release().counts for _ in range(2)]
    assert (pieces[0] != pieces[1]).any()
    sketch = Sketch.hashed(size, epsilon="1/10", levels=4)
    rows = sketch.release().counts.reshape(-1, window)
    assert len(np.unique(rows, axis=0)) == size // window  # 64 noises of 4 bits each: a repeat has chance 2^-200


def test_epoch_noise_differs_from_the_first() -> None:
    sketch = Sketch.hashed(2**12, epsilon="1/10")
    first = sketch.release().counts
    sketch.begin_epoch()
    assert (sketch.release().counts - first != first).any()


