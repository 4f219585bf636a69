"""EventBusMixin: the bus as an attribute of Django's test cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections
from django.test.utils import override_settings

from django_eventbus.conf import conf
from django_eventbus.testing import broker_choice
from django_eventbus.testing.bus import EventBus

if TYPE_CHECKING:
    from django.test import TransactionTestCase as _TestCase
else:
    _TestCase = object


class EventBusMixin(_TestCase):
    """Use it before TestCase or TransactionTestCase: `self.eventbus` is the bus of each test."""

    eventbus: EventBus

    def setUp(self) -> None:
        """Open the bus, and close it after the test."""
        super().setUp()
        own = broker_choice.settings_for(broker_choice.chosen(), conf.given)
        self.enterContext(override_settings(EVENTBUS=own))
        every = self.databases == "__all__"
        self.eventbus = EventBus(databases=connections if every else self.databases)
        self.addCleanup(self.eventbus.close)
