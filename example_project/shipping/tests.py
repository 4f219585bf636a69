"""Test a parcel, from the command to the delayed question."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.test import TestCase
from django.urls import reverse
from django.utils import timezone
from django_eventbus.testing import EventBusMixin

from notifications.events import OpinionWanted
from notifications.models import Notification
from orders.tests import new_order
from shipping.events import OrderShipped, PickUpParcel
from shipping.models import Shipment


class ParcelTests(EventBusMixin, TestCase):
    def test_the_carrier_is_called_by_a_command(self):
        order = new_order()
        shipment = Shipment.objects.create(order=order, item=order.item)

        shipment.call_carrier()

        command = self.eventbus.assert_published(PickUpParcel, order_id=order.pk)
        self.eventbus.deliver(command)
        self.eventbus.assert_published(OrderShipped, order_id=order.pk, key=order.pk, count=1)
        shipment.refresh_from_db()
        self.assertTrue(shipment.picked_up_at)

    def test_the_admin_calls_the_carrier_for_what_waits(self):
        order = new_order()
        waiting = Shipment.objects.create(order=order, item=order.item)
        gone = Shipment.objects.create(order=order, item=order.item, picked_up_at=timezone.now())
        self.client.force_login(get_user_model().objects.create_superuser("ada"))

        chosen = {"action": "call_carrier", "_selected_action": [waiting.pk, gone.pk]}
        self.client.post(reverse("admin:shipping_shipment_changelist"), chosen)

        self.eventbus.assert_published(PickUpParcel, count=1)

    def test_whoever_ordered_is_told_and_asked_later(self):
        order = new_order()
        shipped = OrderShipped(order_id=order.pk, email=order.email)

        # Without the partner, whose endpoint does not run.
        self.eventbus.deliver(shipped, subscription="notifications.say_shipped")
        self.eventbus.deliver(self.eventbus.assert_published(OpinionWanted, order_id=order.pk))

        subjects = Notification.objects.order_by("pk").values_list("subject", flat=True)
        self.assertEqual(list(subjects), ["shipped", "opinion"])
