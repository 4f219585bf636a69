"""Shipping packs what was ordered."""

from __future__ import annotations

from django_eventbus import subscribe

from orders.events import OrderPlaced
from shipping.models import Shipment


@subscribe(OrderPlaced, queue="shipping")
def pack(event: OrderPlaced) -> None:
    Shipment.objects.create(order_id=event.order_id, item=event.item)
