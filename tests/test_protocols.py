"""Protocol P and the pan-private residues: laws, privacy, messages, two processes."""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
import threading
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

import oracles_paper as oracle
from fork_tools import run_forked
from unnoise import _sampler, bounds
from unnoise._thresholds import GeometricDigit
from unnoise.errors import FormatError, InputError, PrivacyError, SealedError
from unnoise.guard import letting_out
from unnoise.noise import DiscreteLaplace
from unnoise.protocols import Alice, Bob, PanPrivateModular, panprivate, two_party_inner_product
from unnoise.protocols.panprivate import NoisyResidueProfile, modular_noise
from unnoise.protocols.two_party import ETA, GRID, _pack, answer_noise
from unnoise.testing import noiseless, seeded

NORMS = (1, 2, math.inf)


def signs(d, seed, agree=0.7):
    rng = np.random.default_rng(seed)
    x = rng.choice([-1, 1], d)
    return x, np.where(rng.random(d) < agree, x, -x)


# Protocol P

@pytest.mark.parametrize("norm", NORMS)
def test_without_noise_the_protocol_is_exact_up_to_the_window(norm):
    """Switch the noise off and let Bob invert noise that is not there: r is A⁻¹f, the statistic linear in f."""
    x, y = signs(400, 0)
    with noiseless():
        alice, bob = Alice(x, epsilon=200), Bob(y, epsilon=200, norm=norm)
        assert alice.read(letting_out(bob.reply, letting_out(alice.message))) == x @ y


def tolerance(d, epsilon, norm, chance):
    """What |answer − ⟨x,y⟩| stays below but for probability 2·chance.

    Three entries of r, each within Theorem 1's bound (ℓ∞ is at most ℓ_p), and the tail of Bob's noise.
    """
    half = Fraction(epsilon) / 2
    return 3 * d * bounds.theorem1(d, 4, half, chance, norm) + answer_noise(d, epsilon).reach(chance) + GRID


@pytest.mark.statistical
@pytest.mark.parametrize("norm", NORMS)
def test_answers_lie_within_the_proven_error(norm):
    """False-alarm rate 8e−10; for these vectors the answer 0 is outside (control)."""
    d, epsilon = 500_000, 4
    x, y = signs(d, 1, agree=0.95)
    alice, bob = Alice(x, epsilon=epsilon), Bob(y, epsilon=epsilon, norm=norm)
    answer = alice.read(bob.reply(alice.message()))
    allowed = tolerance(d, epsilon, norm, 4e-10)
    print(f"answer {answer}, truth {x @ y}, allowed error {allowed:.0f}")
    assert abs(answer - x @ y) <= allowed < x @ y


def test_two_processes_exchange_bytes():
    """False-alarm rate 8e−10, as above."""
    d = 50_000
    x, y = signs(d, 2, agree=0.95)
    answer = two_party_inner_product(x, y, epsilon=8, norm=math.inf)
    assert abs(answer - x @ y) <= tolerance(d, 8, math.inf, 4e-10) < x @ y
    with pytest.raises(InputError, match="x and y must be equally long, got 3 and 2"):
        two_party_inner_product([1, 1, 1], [1, -1], epsilon=1)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NORMS), st.sampled_from([0.5, 2, 6]), st.integers(0, 2**32 - 1))
def test_a_flip_moves_bobs_statistic_by_less_than_his_noise_covers(norm, epsilon, seed):
    """For any message, also one Alice would never send."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 40))
    spread = int(rng.choice([1, 5, 60, 2**40]))
    message = _pack(b"UNPA", d, Fraction(epsilon), rng.integers(-spread, spread + 1, d).astype("<i8").tobytes())
    y = rng.choice([-1, 1], d)
    flipped = y.copy()
    flipped[0] *= -1
    values = [Bob(v, epsilon=epsilon, norm=norm).statistic(message) for v in (y, flipped)]
    steps = [round(value / GRID) for value in values]
    covered = Fraction(epsilon) / answer_noise(d, epsilon).epsilon  # K: the steps that cost ε together
    assert abs(steps[0] - steps[1]) <= covered
    half = Fraction(epsilon) / 2
    inverse = bounds.inverse_norm_bound(half, bounds.window(d, half, ETA), math.inf)
    assert covered == math.floor(3 * d * 2 * (6 * inverse / d) / GRID + 1e-9) + 2  # 3·2Δ, the rounding, one to spare


def test_alices_message_is_private_for_a_flip():
    """Flipping a sign shifts a count by 2; discrete Laplace noise of ε/2 makes that ε, of ε it would be 2ε."""
    epsilon = Fraction(3, 2)
    z = np.arange(-50, 51)
    for law, worst in ((DiscreteLaplace(epsilon / 2), 1.5), (DiscreteLaplace(epsilon), 3.0)):
        assert np.abs(law.log_pmf(z) - law.log_pmf(z - 2)).max() == pytest.approx(worst, rel=1e-12)
    with seeded(9):
        message = letting_out(Alice([1, -1, 1], epsilon=epsilon).message)
    with seeded(9):
        noise = _sampler.discrete_laplace(3, epsilon / 2)
    counts = np.frombuffer(message[-32 - 24 : -32], dtype="<i8")
    assert counts.tolist() == (np.array([2, 0, 2]) + noise).tolist()


def test_messages_are_sent_once():
    alice, bob = Alice([1, -1], epsilon=1), Bob([1, 1], epsilon=1)
    message = alice.message()
    with pytest.raises(SealedError, match="message must be sent once"):
        alice.message()
    bob.reply(message)
    with pytest.raises(SealedError, match="reply must be sent once"):
        bob.reply(message)


def test_damaged_and_foreign_messages_are_refused():
    message = Alice([1, -1, 1], epsilon=1).message()

    def bob():
        return Bob([1, 1, 1], epsilon=1)

    for position in range(len(message)):
        damaged = bytearray(message)
        damaged[position] ^= 1
        with pytest.raises(FormatError):
            bob().reply(bytes(damaged))
    for size in range(len(message)):
        with pytest.raises(FormatError):
            bob().reply(message[:size])
    body = message[:-32] + b"x"
    with pytest.raises(FormatError, match="bytes long"):
        bob().reply(body + hashlib.sha256(body).digest())
    with pytest.raises(FormatError, match="d=2 and epsilon=1"):
        Bob([1, 1], epsilon=1).reply(message)
    with pytest.raises(FormatError, match="d=3 and epsilon=2"):
        Bob([1, 1, 1], epsilon=2).reply(message)
    with pytest.raises(FormatError, match="must be bytes, got str"):
        bob().reply("UNPA")
    with pytest.raises(FormatError, match=r"within ±2\^62"):
        bob().reply(_pack(b"UNPA", 3, Fraction(1), np.array([2**63 - 1, 0, 0]).astype("<i8").tobytes()))
    with pytest.raises(FormatError, match="must begin with b'UNPB'"):
        Alice([1, -1, 1], epsilon=1).read(message)


@pytest.mark.parametrize(
    ("vector", "text"),
    [([0, 1], "x must hold only 1 and -1, got something else"), ([1.0, 1.0], "got floats"), ([], "x must not be empty"),
     ([True, True], "got booleans")],
)
def test_bad_vectors(vector, text):
    with pytest.raises(InputError, match=text):
        Alice(vector, epsilon=1)
    with pytest.raises(InputError, match="epsilon must be > 0, got 0"):
        Bob([1], epsilon=0)


# pan-private residues

@pytest.mark.parametrize(("epsilon", "m"), [(1, 2), (1, 7), ("1/3", 12), (5, 31)])
def test_modular_noise_has_exactly_the_stated_law(epsilon, m):
    """Thresholds of the table against mpmath, to the last of 64 bits; the ratio of any two residues is below e^ε."""
    law = GeometricDigit(Fraction(epsilon) / m, m)
    thresholds = _sampler.DrawTable(law).thresholds.tolist()
    with mpmath.workdps(60):
        q = mpmath.exp(-mpmath.mpf(Fraction(epsilon).numerator) / Fraction(epsilon).denominator / m)
        weights = [q**t for t in range(m)]
        for k, threshold in enumerate(thresholds):
            assert threshold == int(mpmath.floor(2**64 * sum(weights[: k + 1]) / sum(weights)))
        assert weights[0] / weights[-1] <= mpmath.exp(mpmath.mpf(float(Fraction(epsilon))))
    assert len(thresholds) == m - 1


@pytest.mark.statistical
def test_modular_noise_in_samples():
    """χ² at a false-alarm rate of 1e−9; ε wrong by 5 % must be rejected."""
    size, m, epsilon = 4_000_000, 7, 3
    observed = np.bincount(modular_noise(size, epsilon, m), minlength=m)
    for claimed, fits in ((3, True), (3.15, False), (2.85, False)):
        weights = np.exp(-claimed * np.arange(m) / m)
        expected = size * weights / weights.sum()
        statistic = ((observed - expected) ** 2 / expected).sum()
        print(f"claimed ε = {claimed}: χ² = {statistic:.1f}, threshold {chi2.isf(1e-9, m - 1):.1f}")
        assert (statistic < chi2.isf(1e-9, m - 1)) == fits


@pytest.mark.parametrize("norm", NORMS)
def test_residues_are_reconstructed_by_the_dense_inverse(norm):
    """The expected tally of a known profile gives back the profile, through another matrix than the code's."""
    m, epsilon = 9, Fraction(2)
    f = np.array([0.3, 0.2, 0, 0, 0.25, 0, 0, 0, 0.25])
    expected = oracle.dense_modular(epsilon, m) @ f
    cells = 10**15
    tallies = (np.round(expected * cells).astype(np.int64),)
    profile = NoisyResidueProfile(cells, (m,), tallies, epsilon, fresh=False).profile(norm=norm)
    np.testing.assert_allclose(profile, f, atol=1e-11)


@pytest.mark.statistical
@pytest.mark.parametrize("fresh", [False, True])
def test_one_modulus_end_to_end(fresh):
    """‖r − f‖_2 ≤ 2·‖A⁻¹‖₂·‖y − A f‖₂ with McDiarmid at 1e−9; a profile shifted by one residue must fail."""
    d, n, epsilon = 400_000, 4, 4
    state = PanPrivateModular(d, max_count=n, epsilon=epsilon)
    h = np.random.default_rng(4).choice([0, 1, 3], d, p=[0.5, 0.3, 0.2])
    state.update(np.flatnonzero(h), h[h > 0])
    r = (state.release_profile() if fresh else state.release()).profile(norm=2)
    f = np.bincount(h, minlength=n + 1) / d
    q = math.exp(-epsilon / (n + 1))
    spread = math.sqrt(1 / d) + math.sqrt(math.log(1e9) / d)
    if fresh:  # n+1 further noises, each within its reach but for 1e−10
        spread += math.sqrt(n + 1) * DiscreteLaplace(Fraction(epsilon) / 2).reach(1e-10) / d
    allowed = 2 * (1 + q) / (1 - q) * spread
    print(f"error {np.linalg.norm(r - f):.4f}, allowed {allowed:.4f}")
    assert np.linalg.norm(r - f) <= allowed < np.linalg.norm(np.roll(f, 1) - f)


def test_several_primes_bound_the_profile_from_above():
    with noiseless():
        state = PanPrivateModular(6, primes=[7, 3, 5], epsilon=1)
        state.update([0, 1, 1, 2, 4], [1, 10, 5, 1000, -4])
        released = letting_out(state.release)
    assert state.moduli == (3, 5, 7)
    h = np.array([1, 15, 1000, 0, -4, 0])
    assert [r.tolist() for r in released.residues] == [(h % p).tolist() for p in (3, 5, 7)]
    assert released.epsilon == Fraction(1, 3)  # ε is shared by the primes


def test_the_smallest_bound_tells_counts_apart():
    d, primes = 10**15, (11, 13, 17)
    f = {0: 0.5, 1: 0.25, 144: 0.25}  # 144 ≡ 1 (mod 11, 13), ≡ 8 (mod 17)
    tallies = []
    for p in primes:
        g = np.zeros(p)
        for count, share in f.items():
            g[count % p] += share
        tallies.append(np.round(oracle.dense_modular(2, p) @ g * d).astype(np.int64))
    noisy = NoisyResidueProfile(d, primes, tuple(tallies), Fraction(2), fresh=False)
    profile = noisy.profile(max_count=200)
    np.testing.assert_allclose(profile[[0, 1, 144]], [0.5, 0.25, 0.25], atol=1e-10)
    assert profile[12] == pytest.approx(0, abs=1e-10)  # 12 ≡ 1 (mod 11), which another prime clears up
    assert (profile >= -1e-12).all()


def test_fresh_noise_covers_two_tallies_for_each_prime():
    """One item moves two tallies by 1 in each of k moduli: discrete Laplace noise of ε/(2k) on each tally."""
    with seeded(3):
        state = PanPrivateModular(50, primes=[3, 5], epsilon=1)
        residues = [r.copy() for r in state._state]
        released = letting_out(state.release_profile)
    with seeded(3):
        _sampler.open_stream()  # that of the state
        stream = _sampler.open_stream()
        for tally, r, p in zip(released.tallies, residues, (3, 5)):
            noise = np.empty(p, dtype=np.int64)
            _sampler.fill(noise, DiscreteLaplace(Fraction(1, 4)), stream)
            assert (tally - np.bincount(r, minlength=p)).tolist() == noise.tolist()
    assert released.fresh


def test_a_state_is_seen_once():
    state = PanPrivateModular(3, max_count=4, epsilon=1)
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError, match="must not be copied or pickled"):
            copier(state)
    state.release()
    for step in (lambda: state.update([0]), state.release, state.release_profile):
        with pytest.raises(SealedError, match="must not be used after its release"):
            step()


# The guard

SECRETS = {
    "state": (lambda: PanPrivateModular(3, max_count=4, epsilon=1), lambda state: state.release()),
    "state, fresh noise": (lambda: PanPrivateModular(3, max_count=4, epsilon=1), lambda state: state.release_profile()),
    "Alice": (lambda: Alice([1, -1] * 5, epsilon=1), lambda alice: alice.message()),
    "Bob": (
        lambda: Bob([1, -1] * 5, epsilon=1), lambda bob: bob.reply(Alice([1, 1] * 5, epsilon=1).message()),
    ),
}  # fmt: skip
"""How each secret is made, and how it speaks."""


@pytest.mark.parametrize("kind", SECRETS)
def test_no_copies(kind):
    """200 copies of Alice would give away every sign: the noise averages out."""
    make, speak = SECRETS[kind]
    secret = make()
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError, match="must not be copied or pickled"):
            copier(secret)
    speak(secret)


@pytest.mark.parametrize("kind", SECRETS)
def test_it_speaks_once_whatever_the_threads(kind):
    make, speak = SECRETS[kind]
    secret, spoken, refused = make(), [], []
    start = threading.Barrier(8)

    def try_it():
        start.wait()
        try:
            spoken.append(speak(secret))
        except SealedError:
            refused.append(1)

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(spoken), len(refused)) == (1, 7)


@pytest.mark.parametrize("kind", SECRETS)
def test_noise_for_tests_does_not_leave(kind):
    make, speak = SECRETS[kind]
    with seeded(1):
        secret = make()
        other = letting_out(Alice([1, 1] * 5, epsilon=1).message)
        with pytest.raises(PrivacyError, match="needs noise from the operating system"):
            secret.reply(other) if kind == "Bob" else speak(secret)
    speak(make())


def all_refused(secrets):
    refused = 0
    for kind, (_, speak) in SECRETS.items():
        try:
            speak(secrets[kind])
        except PrivacyError as error:
            refused += "this is a fork of it" in str(error)
    return refused == len(SECRETS)


def all_spoken(secrets):
    for kind, (_, speak) in SECRETS.items():
        speak(secrets[kind])


MADE_AND_FORKED = lambda: {kind: make() for kind, (make, _) in SECRETS.items()}, all_refused, all_spoken


@pytest.mark.parametrize("how", [[], ["namespace"]], ids=["fork", "namespace"])
def test_a_fork_says_nothing(how):
    run_forked("test_protocols", how)


def test_what_is_released_is_frozen_and_nothing_is_left_behind():
    state = PanPrivateModular(3, max_count=4, epsilon=1)
    live = state._state[0]
    released = state.release().residues[0]
    for array in (released, live):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        released.flags.writeable = True
    assert state._state == []
    other = PanPrivateModular(3, max_count=4, epsilon=1)
    other.update([0, 1])
    live = other._state[0]
    assert not other.release_profile().tallies[0].flags.writeable
    assert live.tolist() == [0, 0, 0], "wiped"


def test_an_interrupted_update_breaks_the_state(monkeypatch):
    state = PanPrivateModular(3, primes=[3, 5], epsilon=1)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(panprivate.np, "broadcast_to", interrupt)
        with pytest.raises(KeyboardInterrupt):
            state.update([0])
    for step in (lambda: state.update([0]), state.release, state.release_profile):
        with pytest.raises(PrivacyError, match="broken: an update was interrupted"):
            step()


def test_errors_name_no_item_and_carry_none_in_their_frames():
    secret = 7_654_321
    state = PanPrivateModular(3, max_count=4, epsilon=1)
    calls = (
        lambda: state.update([secret]), lambda: state.update([0], [2**70 + secret]), lambda: Alice([secret], epsilon=1),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert str(secret) not in str(caught.value)
        frame, inside = caught.value.__traceback__, []
        while frame:
            if "unnoise" in frame.tb_frame.f_code.co_filename and "tests" not in frame.tb_frame.f_code.co_filename:
                inside.append(repr(frame.tb_frame.f_locals))
            frame = frame.tb_next
        if call is not calls[2]:  # a vector is given when a party is made, by whoever holds it
            assert not any(str(secret) in values for values in inside)


def test_a_refused_update_changes_nothing():
    with noiseless():
        state = PanPrivateModular(3, max_count=4, epsilon=1)
    assert state.guarantee == "none: the noise is noise off for tests"
    for items, counts, text in (
        ([0, 3], None, "items must be between 0 and 2, got one that is not"),
        ([0, -1], None, "items must be between 0 and 2, got one that is not"),
        ([0, 1], [1], "counts must be as long as items"),
        ([0.5], None, "^items must be integers, got floats$"),
        ([], [1], "counts must be as long as items"),
    ):
        with pytest.raises(InputError, match=text):
            state.update(items, counts)
    for nothing in ([], np.array([], dtype=np.int64)):
        state.update(nothing)  # that nobody came must not show either
        state.update(nothing, nothing)
    assert letting_out(state.release).residues[0].tolist() == [0, 0, 0]


def test_bad_parameters():
    for arguments, text in (
        ({"epsilon": 1}, "exactly one of max_count and primes"),
        ({"epsilon": 1, "max_count": 3, "primes": [3]}, "exactly one of max_count and primes"),
        ({"epsilon": 1, "primes": [4]}, "primes must be prime, got 4"),
        ({"epsilon": 1, "primes": [3, 3]}, "primes must be distinct"),
        ({"epsilon": 1, "primes": []}, "primes must be distinct and at least one"),
        ({"epsilon": 1, "max_count": 0}, "max_count must be an integer ≥ 1, got 0"),
        ({"epsilon": 1, "max_count": 10**9}, "modulus must be ≤ 262,144"),
        ({"epsilon": -1, "max_count": 3}, "epsilon must be > 0, got -1"),
    ):
        with pytest.raises(InputError, match=text):
            PanPrivateModular(5, **arguments)
    with pytest.raises(InputError, match="cells must be an integer ≥ 1, got 0"):
        PanPrivateModular(0, max_count=3, epsilon=1)
    several = PanPrivateModular(5, primes=[3, 5], epsilon=1).release()
    with pytest.raises(InputError, match="max_count is required with several primes"):
        several.profile()
    with pytest.raises(InputError, match="max_count must be ≤ 3, the largest residue, got 4"):
        PanPrivateModular(5, max_count=3, epsilon=1).release().profile(max_count=4)


def test_the_guarantee_in_words():
    text = PanPrivateModular(5, max_count=3, epsilon=0.5).guarantee
    assert "0.5-differentially private for a change of one item's count by any amount" in text
    assert text.endswith("together: 1")
