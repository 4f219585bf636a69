"""The payload for every contestant."""

from __future__ import annotations

from typing import Any


def payload(number: int) -> dict[str, Any]:
    """Return about 260 bytes of JSON."""
    return {
        "order_id": number,
        "customer": f"customer-{number:08}",
        "currency": "EUR",
        "total": "129.90",
        "lines": [{"sku": f"SKU-{number % 977:05}", "quantity": 2, "price": "64.95"}],
        "note": "leave the message with the neighbour on the left, please; " * 2,
    }
