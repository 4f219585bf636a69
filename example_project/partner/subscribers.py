"""Forward OrderShipped to the partner over HTTP."""

from __future__ import annotations

from django.conf import settings
from django_eventbus.contrib.http import forward

from shipping.events import OrderShipped

forward(
    OrderShipped,
    settings.PARTNER_URL,
    name="partner.shipped",
    secret=settings.PARTNER_SECRET,
    queue="partner",
)
