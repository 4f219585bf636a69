"""What shipping is told to do, and what it tells the world."""

from __future__ import annotations

from django_eventbus import Command, Event, EventSignal


class PickUpParcel(Command, type="parcel.pick_up", version=1):
    """The parcel of an order is to be picked up; shipping does it, and nobody else."""

    order_id: int


class OrderShipped(Event, type="order.shipped", version=1):
    """The parcel of an order is on its way."""

    order_id: int
    email: str


ORDER_SHIPPED = EventSignal(OrderShipped, key="order_id")
