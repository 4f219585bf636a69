"""Signatures of the Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time

from django.http import HttpRequest

#: Seconds for which a signature is valid.
TOLERANCE = 300


def is_signed(request: HttpRequest, secret: str) -> bool:
    """Whether the request was signed with *secret* a short time ago."""
    sent_at = request.headers.get("webhook-timestamp", "")
    if not sent_at.isdecimal() or abs(time.time() - int(sent_at)) > TOLERANCE:
        return False
    expected = signature(request.headers.get("webhook-id", ""), sent_at, request.body, secret)
    return hmac.compare_digest(expected, request.headers.get("webhook-signature", "").encode())


def signature(event_id: str, sent_at: str, body: bytes, secret: str) -> bytes:
    digest = hmac.digest(secret.encode(), f"{event_id}.{sent_at}.".encode() + body, hashlib.sha256)
    return b"v1," + base64.b64encode(digest)
