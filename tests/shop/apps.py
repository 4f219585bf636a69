"""The application that the tests publish from and subscribe with; it has no migrations."""

from __future__ import annotations

import os

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.shop"
    label = "shop"

    def ready(self) -> None:
        """Shorten the waits of a process that a test breaks something under."""
        from django_eventbus import outages
        from django_eventbus.outbox import relay

        if waits := os.environ.get("EVENTBUS_TEST_WAITS"):
            shortest, longest = map(float, waits.split())
            outages.OUTAGE_WAIT = relay.HOLD_WAIT = (shortest, longest)
