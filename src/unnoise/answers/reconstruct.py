"""From noisy counts to a profile: the one entry to every estimator.

Checks what it is given (the law of the noise, integers, no thresholding), runs the free check of the claimed ε
(:mod:`unnoise.answers.check`), calls the estimator and wraps its result in a :class:`~unnoise.answers.profile.Profile`.

Clipped input: for ρ = 1 what lies below 0 carries no information, so every method that folds (all but ``paper``, ``lp``
and ``exact``) takes counts clamped at 0 as they are; for those three the clipped tail is drawn anew
(the unfolding of Wu & Pagh 2024, :func:`unnoise.estimators.paper.unfold`), which restores the law of the unclipped
input.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..curve import NoisyCurve
from ..errors import InputError
from ..estimators.methods import METHODS, capped, check_input, check_method, estimate_law
from ..noise import DiscreteLaplace, Exact, exact_positive
from ..noisy import NoisyCounts, NoisyProfile
from .bands import step_error
from .check import ALARM, Cliff, check_claim, find_cliffs, warn_of
from .profile import Profile

__all__ = ["reconstruct"]


def reconstruct(
    noisy: NoisyProfile | NoisyCounts | NoisyCurve | Any,
    *,
    epsilon: Exact | None = None,
    power: Exact | None = None,
    noise: DiscreteLaplace | None = None,
    method: str = "auto",
    max_count: int | None = None,
    norm: float | None = None,
    clipped: bool = False,
) -> Profile:
    """Reconstruct the profile: for every t, the share of items with count exactly t.

    Parameters
    ----------
    noisy : NoisyProfile, NoisyCounts, NoisyCurve or integers
        A released sketch, a released curve, or a histogram noised elsewhere: one signed integer per item of a known
        domain.
    epsilon : number or str, optional
        ε of the discrete Laplace noise; required for plain integers, otherwise it must agree with ``noisy``.
    power : number or str, optional
        How many such noises were added up in each count; 1 unless given.
    noise : DiscreteLaplace, optional
        The whole law, in place of ``epsilon``: for merged noise.
    method : str
        "auto" (the default), "paper", "linear", "isotonic", "likelihood", "exact", "smooth" or "lp".
    max_count : int, optional
        A bound that truly holds for every count. A sketch whose items are persons of limited occurrences knows one.
    norm : 1, 2 or inf, optional
        For "paper" and "exact" (2 unless given) and "lp" (1, or inf).
    clipped : bool
        The input was clamped to [0, max_count], or at 0 only when ``max_count`` is None.

    Returns
    -------
    Profile
        With answers and intervals; ``diagnostics["claim"]`` holds the free check of ε.

    Examples
    --------
    >>> p = reconstruct([1, 1, 2, 0, 1, -1, 3, 0], epsilon=1, method="isotonic")
    >>> p.method, p.cells
    ('isotonic', 8)
    """
    row = check_method(method, norm)
    chosen = norm if norm is not None else row.norm if row.norms else 2
    if isinstance(noisy, NoisyCurve):
        return _from_curve(noisy, method, max_count, clipped)
    profile = _as_noisy_profile(noisy, epsilon, power, noise)
    bound = check_input(profile, max_count, least=1 if profile.layout.kind == "hashed" else 0)
    bound = min((each for each in (bound, profile.max_count) if each is not None), default=None)
    if clipped:
        given, notes = _unclip(profile, method, bound)
    else:
        for cliff in find_cliffs(profile):
            _refuse(cliff, profile, method)
        claim = check_claim(profile)
        if claim.p_value < ALARM:
            warn_of(claim)
        given, notes = profile, {"claim": vars(claim).copy()}
    if profile.layout.kind == "hashed":
        from .items import item_profile

        found: Profile = item_profile(given, method=method, norm=chosen, max_count=bound, diagnostics=notes)
    else:
        fit = estimate_law(given, method, chosen, bound)
        notes = {**fit.diagnostics, **notes}
        found = Profile(fit.support, fit.mass, fit.method, profile, notes, bound, notices=fit.notices)
    if bound is not None and bound == profile.max_count == profile.layout.max_contributions:
        # the limit of one call cut the counts of its persons; one that is declared says that there are no larger
        found = replace(found, cap=bound, notices=(*found.notices, capped(bound)))
    if profile.layout.kind != "hashed" and 2 * step_error(profile.noise) >= math.sqrt(profile.cells):
        # An unbiased number of cells may be off by more than all of them (two standard errors; public parameters only),
        # as after a few merges, and says nothing.
        return _by_model(found)
    return found


def _by_model(profile: Profile) -> Profile:
    """Take the intervals of the model, if it tells of the items."""
    other: Any = profile.with_intervals("model")
    return other if other.tells else profile


def _from_curve(curve: NoisyCurve, method: str, bound: Any, clipped: bool) -> Profile:
    """Answer again from the numbers of a direct profile."""
    from .direct import direct_profile

    if method not in ("auto", "isotonic") or bound is not None or clipped:
        raise InputError(
            f"a noisy curve must be given without method, max_count and clipped, got {method!r}, {bound}, {clipped}"
        )
    return direct_profile(curve)


def _unclip(noisy: NoisyProfile, method: str, bound: int | None) -> tuple[NoisyProfile, dict[str, Any]]:
    """Check clipped input, and unfold it for the methods that need what lies below 0."""
    if noisy.noise.power != 1:
        raise InputError(f"clipped counts must carry one noise (power 1), got power {noisy.noise.power}")
    if noisy.values[0] < 0:
        raise InputError(f"clipped counts must be ≥ 0, got {int(noisy.values[0])}")
    if bound is not None and noisy.values[-1] > bound:
        raise InputError(f"clipped counts must be ≤ max_count={bound}, got {int(noisy.values[-1])}")
    for cliff in find_cliffs(noisy):
        if not (cliff.value == 0 and cliff.side < 0) and cliff.value != bound:
            _refuse(cliff, noisy, method)
    notes: dict[str, Any] = {"claim": {"available": False, "verdict": "not available for clipped input"}}
    if METHODS[method].needs_negatives:
        from ..estimators.paper import unfold

        return unfold(noisy, max_count=bound), {**notes, "clipped": "unfolded by fresh geometric tails"}
    return noisy, {**notes, "clipped": "folded: no randomness added"}


def _refuse(cliff: Cliff, noisy: NoisyProfile, method: str) -> None:
    """Raise for a histogram that was cut; a clamp at 0 only where the method needs the negative counts."""
    lowest = cliff.side < 0 and cliff.value == int(noisy.values[0])
    if lowest and cliff.value == 0 and noisy.noise.power == 1 and not METHODS[method].needs_negatives:
        return  # the free check warns
    seen = f"{cliff.cells:,} cells hold {cliff.value} and none holds {cliff.value + cliff.side}"
    if lowest and cliff.value == 0:
        raise InputError(f"noisy counts must not be clamped at 0 unless clipped=True, got a cliff: {seen}")
    if cliff.side > 0 and cliff.value == int(noisy.values[-1]):
        raise InputError(
            f"noisy counts must not be clipped from above unless clipped=True and max_count={cliff.value}, "
            f"got a cliff: {seen}"
        )
    raise InputError(
        f"noisy counts must not be thresholded (small counts suppressed), got a cliff that noise of "
        f"epsilon={float(noisy.noise.epsilon):g} cannot make: {seen}"
    )


def _as_noisy_profile(
    noisy: Any, epsilon: Exact | None, power: Exact | None, noise: DiscreteLaplace | None
) -> NoisyProfile:
    """Bring the input into one form and settle the law of its noise."""
    if noise is not None and not isinstance(noise, DiscreteLaplace):
        raise InputError(f"noise must be a DiscreteLaplace, got {type(noise).__name__}")
    if isinstance(noisy, NoisyCounts):
        noisy = noisy.profile()
    known = noisy.noise if isinstance(noisy, NoisyProfile) else noise
    for name, given in (("epsilon", epsilon), ("power", power)):
        if known is not None and given is not None and exact_positive(name, given) != getattr(known, name):
            raise InputError(f"{name} must agree with {known}, got {name}={given}")
    if isinstance(noisy, NoisyProfile):
        if noise is not None and noise != noisy.noise:
            raise InputError(f"noise must agree with the noisy profile's {noisy.noise}, got {noise}")
        return noisy
    law = noise or DiscreteLaplace(exact_positive("epsilon", epsilon), 1 if power is None else power)
    return NoisyProfile.from_counts(noisy, epsilon=law.epsilon, power=law.power)
