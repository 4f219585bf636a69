"""The command and the event of shipping."""

from __future__ import annotations

from django_eventbus import Command, Event, EventSignal


class PickUpParcel(Command, type="parcel.pick_up", version=1):
    """Pick up the parcel of an order. Only shipping handles this command."""

    order_id: int


class OrderShipped(Event, type="order.shipped", version=1):
    """The parcel of an order is on its way."""

    order_id: int
    email: str


ORDER_SHIPPED = EventSignal(OrderShipped, key="order_id")
