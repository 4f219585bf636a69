"""Pack orders, and give parcels to the carrier."""

from __future__ import annotations

from django.utils import timezone
from django_eventbus import handle_command, subscribe

from orders.events import OrderPlaced
from shipping.events import ORDER_SHIPPED, PickUpParcel
from shipping.models import Shipment
from stock import warehouse


@subscribe(OrderPlaced, queue="shipping")
def pack(event: OrderPlaced) -> None:
    Shipment.objects.create(order_id=event.order_id, item=event.item)
    warehouse.take(event.item)


@handle_command(PickUpParcel, queue="shipping")
def pick_up(command: PickUpParcel) -> None:
    shipment = Shipment.objects.select_related("order").get(order_id=command.order_id)
    shipment.picked_up_at = timezone.now()
    shipment.save(update_fields=["picked_up_at"])
    ORDER_SHIPPED.send(sender=Shipment, order_id=shipment.order_id, email=shipment.order.email)
