"""Notifications in the admin."""

from __future__ import annotations

from django.contrib import admin

from notifications.models import Notification


@admin.register(Notification)
class NotificationAdmin(admin.ModelAdmin):
    list_display = ("subject", "order", "email", "written_at")
