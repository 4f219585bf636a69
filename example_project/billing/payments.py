"""Charge cards. The payment provider fails in the way that the card selects."""

from __future__ import annotations

from billing.models import PaymentProvider
from orders.cards import Card

LUNAR = "Lunar Payments"


class InvalidCard(Exception):
    """A retry cannot succeed."""


class CardTimeout(Exception):
    """A retry may succeed."""


class ProviderDown(Exception):
    """A retry succeeds when the provider is up again."""


def charge(card: Card, *, attempt: int) -> None:
    """Raise unless the *card* can be charged."""
    if card == Card.INVALID:
        raise InvalidCard("the number of the card does not exist")
    if card == Card.FLAKY and attempt <= 2:
        raise CardTimeout("the terminal did not answer in time")
    if card == Card.LUNAR and PaymentProvider.objects.filter(name=LUNAR, is_up=False).exists():
        raise ProviderDown(f"{LUNAR} answered 503")
