"""Who may do what: tokens for sites, viewers and administrators.

A token is ``un_<id>_<secret>``: 8 bytes of name and 32 of secret, base64url. The database keeps SHA-256 of the secret
(a secret of 256 random bits needs no slow hash), compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from .._sampler import Keystream
from ..errors import InputError

__all__ = ["ROLES", "Visitor", "allowed", "hash_of", "matches", "new_token", "split"]

ROLES = ("site", "viewer", "administrator", "collector")

_MAY = {
    "site": {"send", "see tasks"},
    "viewer": {"see tasks", "see answers"},
    "collector": {"see tasks", "add up"},
    "administrator": {"see tasks", "see answers", "make tasks", "make tokens", "see audit"},
}


@dataclass(frozen=True)
class Visitor:
    """Who is asking: the token's name, its role, and the site it sends for."""

    token: str
    role: str
    site: str | None = None

    def __str__(self) -> str:
        return f"{self.role} {self.site or self.token}"


def allowed(visitor: Visitor, act: str) -> bool:
    """Whether the visitor's role may do this."""
    return act in _MAY.get(visitor.role, set())


def new_token(role: str) -> tuple[str, str, str]:
    """Return the whole token, its name and the hash of its secret."""
    if role not in ROLES:
        raise InputError(f"role must be one of {', '.join(ROLES)}, got {role!r:.80}")
    drawn = Keystream().words(5).tobytes()
    name, secret = drawn[:8].hex(), urlsafe_b64encode(drawn[8:]).decode().rstrip("=")
    return f"un_{name}_{secret}", name, hash_of(secret)


def hash_of(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def split(token: str) -> tuple[str, str] | None:
    """Return name and secret of a token, None where it is none.

    >>> split("un_0011223344556677_abc")
    ('0011223344556677', 'abc')
    """
    head, _, rest = token.partition("_")
    name, _, secret = rest.partition("_")
    return (name, secret) if head == "un" and len(name) == 16 and secret and len(secret) <= 100 else None


def matches(secret: str, stored: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(hash_of(secret), stored)
