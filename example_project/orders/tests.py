"""Test orders without a broker, a worker or waiting."""

from __future__ import annotations

from django.test import TestCase
from django.urls import reverse
from django_eventbus.testing import EventBusMixin, Handled, Park, Retry

from billing.models import Invoice
from orders.cards import Card
from orders.checkout import place
from orders.events import OrderPlaced
from orders.models import Item, Order


def new_order(card: Card = Card.GOOD) -> Order:
    return place(Order(item=Item.TEAPOT, email="ada@example.com", card=card))


class OrderTests(EventBusMixin, TestCase):
    def test_the_page_places_an_order_and_publishes_it(self):
        self.client.post(
            reverse("shop"), {"item": "teapot", "email": "a@b.example", "card": "good"}
        )

        order = Order.objects.get()
        self.eventbus.assert_published(OrderPlaced, order_id=order.pk, key=order.pk)

    def test_a_form_with_a_mistake_publishes_nothing(self):
        self.client.post(reverse("shop"), {"item": "teapot", "email": "", "card": "good"})

        self.eventbus.assert_not_published("order.*")

    def test_an_order_is_charged_packed_and_confirmed(self):
        order = new_order()

        self.eventbus.drain()

        effects = (order.invoices, order.shipments, order.notifications)
        self.assertEqual([each.count() for each in effects], [1, 1, 1])

    def test_a_flaky_card_is_charged_once_at_the_third_attempt(self):
        new_order(Card.FLAKY)

        outcomes = self.eventbus.drain().by("billing.charge")

        self.assertEqual([type(each) for each in outcomes], [Retry, Retry, Handled])
        self.assertEqual(Invoice.objects.count(), 1)

    def test_an_invalid_card_is_parked_at_once_and_nothing_is_charged(self):
        new_order(Card.INVALID)

        outcomes = self.eventbus.drain().by("billing.charge")

        self.assertEqual([type(each) for each in outcomes], [Park])
        self.assertEqual([each.error_type for each in self.eventbus.parked], ["InvalidCard"])
        self.assertFalse(Invoice.objects.exists())
