"""The events of orders."""

from __future__ import annotations

from decimal import Decimal

from django_eventbus import Event

from orders.cards import Card


class OrderPlaced(Event, type="order.placed", version=1):
    """An order was placed. Nothing has been charged, packed or sent yet."""

    order_id: int
    item: str
    total: Decimal
    email: str
    card: Card
