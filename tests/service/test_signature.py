"""Signatures: they hold for their secret, body and time, and for nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmware.service.signature import sign, verify


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=40), st.binary(min_size=1))
def test_a_signature_holds_for_its_secret_body_and_time(
    body: bytes, secret: bytes, other: bytes
) -> None:
    header = sign([secret], body, 1000)
    assert verify(secret, header, body, now=1000 + 299)
    assert not verify(secret, header, body, now=1000 + 301)
    assert not verify(secret, header, body, now=1000 - 301)
    assert not verify(secret, header, body + b" ", now=1000)
    assert not verify(secret, header.replace("t=1000", "t=1001"), body, now=1000)
    # HMAC fills short keys up with zeros: such keys are the same one.
    if other.rstrip(b"\0") != secret.rstrip(b"\0"):
        assert not verify(other, header, body, now=1000)


def test_while_a_secret_is_replaced_both_are_good() -> None:
    header = sign([b"new", b"old"], b"body", 1000)
    assert header.count("v1=") == 2
    assert all(verify(secret, header, b"body", now=1000) for secret in (b"new", b"old"))
    assert not verify(b"older", header, b"body", now=1000)


@pytest.mark.parametrize(
    "header", ["", "t=", "v1=00", "t=x,v1=00", "t=1,t=1000,v1=00", "t=1000", "é"]
)
def test_odd_headers_are_no_signatures(header: str) -> None:
    assert not verify(b"secret", header, b"body", now=1000)


@pytest.mark.parametrize("digits", [13, 400, 5000])
def test_a_time_that_is_no_number_of_this_world_is_refused(digits: int) -> None:
    assert not verify(b"secret", f"t={'9' * digits},v1=00", b"body")
    assert not verify(b"secret", f"t={'9' * digits},v1=00", b"body", now=1000)
