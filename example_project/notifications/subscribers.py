"""Notifications write to whoever ordered."""

from __future__ import annotations

from django_eventbus import subscribe

from notifications.models import Notification
from orders.events import OrderPlaced


@subscribe(OrderPlaced, queue="notifications")
def confirm(event: OrderPlaced) -> None:
    Notification.objects.create(
        order_id=event.order_id,
        email=event.email,
        subject=f"Thank you for order {event.order_id}",
    )
