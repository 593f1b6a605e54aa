"""Two servers that see nothing add up the cells of many sites, with two noises instead of one a site.

A site splits its *un-noised* cells h modulo 2⁶⁴ into two shares, h = r + (h − r), r the AES-CTR stream of a fresh
32-byte seed. One server gets the seed, the other the difference; each alone is uniform bits. Each server adds up what
the sites of an agreed set sent, adds one whole discrete Laplace noise, and publishes; the collector adds both answers:

    Σ r + Z₁  +  Σ (h − r) + Z₂  =  Σ h + Z₁ + Z₂        (modulo 2⁶⁴, and small, so exactly)

which is a sealed sketch of power 2. **The promise, exactly:** computational (AES) ε per occurrence and asked sum,
against one server together with the collector and all other sites: they know everything but h and the other server's
noise, so what they see of a site is h plus one whole noise. A person counted at s sites: s·ε; q overlapping sums: q·ε.
Nothing is promised if both servers collude. A malicious server or site can falsify the result, not learn more: there
are no proofs that shares are well formed. A site that drops out costs nothing.

What the promise rests on **each server enforces by itself**, whatever the other one says (:mod:`.server`). Messages are
bytes (:mod:`.messages`); who sent them is for the transport to prove. docs/sites.md has the protocol to the byte.
"""

from .combining import ServerProcess, add_up, combine
from .server import Server
from .site import Shares, Site
from .task import Task

__all__ = ["Server", "ServerProcess", "Shares", "Site", "Task", "add_up", "combine"]
