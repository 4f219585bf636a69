"""Register checks, logs and metrics, and find every app's events and subscribers."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class EventBusConfig(AppConfig):
    """The app `eventbus`."""

    name = "django_eventbus"
    label = "eventbus"
    verbose_name = _("Event bus")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_eventbus import checks
        from django_eventbus.observability import logs, statsd

        checks.register_all()
        logs.connect()
        statsd.connect()
        autodiscover_modules("events", "subscribers")
