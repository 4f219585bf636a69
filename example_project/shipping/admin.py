"""Shipments in the admin."""

from __future__ import annotations

from django.contrib import admin

from shipping.models import Shipment


@admin.register(Shipment)
class ShipmentAdmin(admin.ModelAdmin):
    list_display = ("__str__", "item", "packed_at")
