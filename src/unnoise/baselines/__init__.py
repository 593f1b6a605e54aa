"""The systems of the field, each with its source, trust model and unit, on equal terms: true counts in, a profile out.

For comparison, in benchmarks and on data without secrets: they take true counts, and some of them bounds that are not
public. All use the package's exact discrete Laplace noise, whatever noise their papers used.

>>> sorted(BASELINES)[:3]
['bins', 'blocki', 'ghazi']
>>> BASELINES["hay"].model, BASELINES["hay"].unit
('central', 'one occurrence')
"""

from __future__ import annotations

from .mechanisms import (
    Mechanism,
    Released,
    bins,
    blocki,
    ghazi,
    graphical,
    hay,
    karwa,
    karwa_degrees,
    lp,
    manurangsi,
    naive,
    suresh,
    synthetic_graph,
    thresholded,
)
from .summaries import SampledProfile, Summary, VectorOfCounts, bucketed_profile, min_wise_sample, vector_of_counts

__all__ = [
    "BASELINES", "SUMMARIES", "Mechanism", "Released", "SampledProfile", "Summary", "VectorOfCounts",
    "bucketed_profile", "graphical", "karwa_degrees", "min_wise_sample", "synthetic_graph", "vector_of_counts",
]  # fmt: skip

OCCURRENCE = "one occurrence"

BASELINES: dict[str, Mechanism] = {
    m.name: m
    for m in (
        Mechanism("naive", "local noise", OCCURRENCE, "folklore: clamp noisy counts at 0 and count them", naive),
        Mechanism(
            "bins", "central", OCCURRENCE, "C. Dwork, F. McSherry, K. Nissim, A. Smith, TCC 2006 (Laplace mechanism)",
            bins, "bound on counts: ten times the largest, as if public",
        ),
        Mechanism(
            "hay", "central", OCCURRENCE,
            "M. Hay, C. Li, G. Miklau, D. Jensen, ICDM 2009; M. Hay, V. Rastogi, G. Miklau, D. Suciu, VLDB 2010", hay,
            "number of items public",
        ),
        Mechanism(
            "suresh", "central", OCCURRENCE, "A. T. Suresh, NeurIPS 2019", suresh,
            "ends meet at √(N/ε), N public, half of ε for each: the paper's constants were not at hand",
        ),
        Mechanism(
            "manurangsi", "central", OCCURRENCE, "P. Manurangsi, SOSA 2022", manurangsi,
            "both ends as one vector, meeting at √(N/ε), N public: the paper's constants were not at hand",
        ),
        Mechanism(
            "blocki", "central", OCCURRENCE, "J. Blocki, A. Datta, J. Bonneau, NDSS 2016", blocki,
            "band of 48/ε, bound on counts as for bins; score −‖x − y‖₁, so e^(−ε/2) for each box",
        ),
        Mechanism(
            "ghazi", "pan-private", OCCURRENCE, "B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi, NeurIPS 2022", ghazi,
            "folded counts, which have less variance than the paper's",
        ),
        Mechanism(
            "karwa", "central", "one edge (two occurrences)", "V. Karwa, A. Slavković, PSD 2012", karwa,
            "compared at 2ε for an edge, which is ε for each of its occurrences; above 5,000 nodes not made graphical",
        ),
        Mechanism(
            "lp", "pan-private", OCCURRENCE, "C. Dwork, M. Naor, T. Pitassi, G. Rothblum, S. Yekhanin, ICS 2010", lp,
            "norm ∞",
        ),
        Mechanism(
            "thresholded", "central", OCCURRENCE,
            "B. Ghazi et al., PoPETs 2022 (reach and frequency, thresholded counts)", thresholded,
            "bins with noise for ε/2, suppressed below ln(1/2δ)·2/ε, δ = 1e-9; the sketch around it left out",
        ),
    )
}
"""All mechanisms that give a private profile, by name."""

SUMMARIES: dict[str, Summary] = {
    s.name: s
    for s in (
        Summary(
            "vector_of_counts", "local noise", "one item of a site",
            "World Federation of Advertisers, cardinality estimation evaluation, 2020", vector_of_counts,
            "reach and overlap, no profile",
        ),
        Summary(
            "min_wise_sample", "no privacy", "", "M. Datar, S. Muthukrishnan, ESA 2002", min_wise_sample,
            "a stream in little memory",
        ),
        Summary(
            "bucketed_profile", "no privacy", "", "J. Chen, P. Indyk, D. Woodruff, ITCS 2024", bucketed_profile,
            "a stream in little memory; their bound, not their algorithm, whose constants were not at hand",
        ),
    )
}
"""What else the field is compared with, by name."""
