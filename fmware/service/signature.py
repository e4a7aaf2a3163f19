"""Signatures of webhooks: who sent a request, and when.

    FMware-Signature: t=1794830400,v1=<hex>

`v1` is HMAC-SHA256, by the secret, of the decimal time, a dot and the body. While a secret is
replaced there are two of them, by the new one and by the old one. A receiver calls `verify`, which
needs nothing but this module.
"""

from __future__ import annotations

import hmac
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["SIGNATURE", "sign", "verify"]

SIGNATURE: Final = "FMware-Signature"
TOLERANCE: Final = 300.0
"""Seconds that a receiver's clock and the sender's may be apart."""
DIGITS: Final = 12
"""The most digits of a time: numbers that are much longer cannot be reckoned with."""


def sign(secrets: Iterable[bytes], body: bytes, at: int) -> str:
    """The header of a body: one signature for each secret that is good."""
    signed = f"{at}.".encode() + body
    made = [f"v1={hmac.new(secret, signed, sha256).hexdigest()}" for secret in secrets]
    return ",".join([f"t={at}", *made])


def verify(
    secret: bytes,
    header: str,
    body: bytes,
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE,
) -> bool:
    """Whether a body comes from who knows the secret, and is not an old one sent again."""
    parts = [part.partition("=") for part in header.split(",")]
    times = [value for key, _, value in parts if key == "t" and _is_time(value)]
    if len(times) != 1 or abs((time.time() if now is None else now) - int(times[0])) > tolerance:
        return False
    wanted = hmac.new(secret, f"{times[0]}.".encode() + body, sha256).hexdigest().encode()
    made = [value.encode() for key, _, value in parts if key == "v1"]
    return any(hmac.compare_digest(wanted, each) for each in made)


def _is_time(said: str) -> bool:
    return said.isdecimal() and len(said) <= DIGITS
