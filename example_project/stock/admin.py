"""The stock in the admin, where a change also publishes. The ledger is read-only."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from stock.models import LedgerLine, StockItem


@admin.register(StockItem)
class StockItemAdmin(admin.ModelAdmin):
    list_display = ("item", "left")
    readonly_fields = ("item",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(LedgerLine)
class LedgerLineAdmin(admin.ModelAdmin):
    list_display = ("__str__", "written_at")
    list_filter = ("stock",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False
