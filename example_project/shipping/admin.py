"""Shipments in the admin, where the carrier is called."""

from __future__ import annotations

from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from shipping.models import Shipment


@admin.register(Shipment)
class ShipmentAdmin(admin.ModelAdmin):
    list_display = ("__str__", "item", "packed_at", "picked_up_at")
    actions = ("call_carrier",)

    @admin.action(description="Call the carrier", permissions=["change"])
    @transaction.atomic
    def call_carrier(self, request: HttpRequest, queryset: QuerySet[Shipment]) -> None:
        waiting = list(queryset.filter(picked_up_at=None))
        for shipment in waiting:
            shipment.call_carrier()
        self.message_user(request, f"The carrier was called for {len(waiting)}.")
