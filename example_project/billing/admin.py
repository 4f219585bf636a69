"""Invoices and payment providers in the admin."""

from __future__ import annotations

from django.contrib import admin

from billing.models import Invoice, PaymentProvider


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    list_display = ("__str__", "total", "charged_at")


@admin.register(PaymentProvider)
class PaymentProviderAdmin(admin.ModelAdmin):
    list_display = ("name", "is_up")
    list_editable = ("is_up",)
