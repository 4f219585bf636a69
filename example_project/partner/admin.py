"""The events at the partner in the admin."""

from __future__ import annotations

from django.contrib import admin

from partner.models import PartnerEvent


@admin.register(PartnerEvent)
class PartnerEventAdmin(admin.ModelAdmin):
    list_display = ("__str__", "received_at")
