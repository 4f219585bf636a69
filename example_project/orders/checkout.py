"""Place orders."""

from __future__ import annotations

from django.db import transaction
from django_eventbus import publish

from orders.cards import Card
from orders.events import OrderPlaced
from orders.models import PRICES, Item, Order


@transaction.atomic
def place(order: Order) -> Order:
    """Save the order and publish OrderPlaced, in one transaction."""
    order.total = PRICES[Item(order.item)]
    order.save()
    order.event_id = publish(placed(order), key=order.pk)
    order.save(update_fields=["event_id"])
    return order


def placed(order: Order) -> OrderPlaced:
    return OrderPlaced(
        order_id=order.pk,
        item=order.item,
        total=order.total,
        email=order.email,
        card=Card(order.card),
    )
