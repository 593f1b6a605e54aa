"""Protocols that speak the same noise: Protocol P for two parties, and pan-private residues.

Both draw exact noise and reconstruct with the circulant machinery of :mod:`unnoise._circulant`.
"""

from .panprivate import NoisyResidueProfile, NoisyResidues, PanPrivateModular
from .two_party import Alice, Bob, two_party_inner_product

__all__ = ["Alice", "Bob", "NoisyResidueProfile", "NoisyResidues", "PanPrivateModular", "two_party_inner_product"]
