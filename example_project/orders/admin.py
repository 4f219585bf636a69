"""Orders in the admin. They are created only on the shop's page, which publishes an event."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from orders.models import Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("__str__", "item", "total", "email", "card", "placed_at")
    list_filter = ("card", "item")
    readonly_fields = ("total", "placed_at", "event_id")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False
