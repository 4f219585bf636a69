"""Charge the cards for orders."""

from __future__ import annotations

from django_eventbus import subscribe

from billing import payments
from billing.models import Invoice
from orders.events import OrderPlaced


@subscribe(OrderPlaced, queue="billing", park_on=[payments.InvalidCard])
def charge(event: OrderPlaced) -> None:
    """Write the invoice and charge the card. If that fails, the invoice is rolled back too."""
    Invoice.objects.create(order_id=event.order_id, total=event.total)
    payments.charge(event.card, attempt=event.meta.attempt)
