"""Test the changes of the stock, and their order in the ledger."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.db import IntegrityError
from django.test import TestCase
from django.urls import reverse
from django_eventbus.testing import EventBusMixin

from orders.models import Item
from stock import warehouse
from stock.events import StockChanged
from stock.models import LedgerLine, StockItem
from stock.subscribers import CountedTwice


class StockTests(EventBusMixin, TestCase):
    def test_to_take_an_item_publishes_what_is_left(self):
        warehouse.take(Item.TEAPOT)

        self.eventbus.assert_published(StockChanged, item="teapot", left=49, key="teapot")

    def test_to_change_it_in_the_admin_publishes_too(self):
        self.client.force_login(get_user_model().objects.create_superuser("ada"))

        address = reverse("admin:stock_stockitem_change", args=["lantern"])
        self.client.post(address, {"left": 7})

        self.eventbus.assert_published(StockChanged, item="lantern", left=7, count=1)

    def test_a_line_that_is_tried_again_keeps_its_place_in_the_ledger(self):
        for quantity in (50, 20, -5):
            warehouse.add(Item.TEAPOT, quantity)

        delivered = self.eventbus.drain()

        changes = LedgerLine.objects.filter(stock="teapot").values_list("change", flat=True)
        self.assertEqual([type(each) for each in delivered.errors], [CountedTwice])
        self.assertEqual(list(changes), [50, 50, 20, -5])

    def test_what_is_not_in_stock_cannot_be_taken(self):
        StockItem.objects.filter(pk=Item.TEAPOT).update(left=0)

        with self.assertRaises(IntegrityError):
            warehouse.take(Item.TEAPOT)
