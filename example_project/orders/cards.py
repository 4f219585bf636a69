"""The cards with which a visitor can pay. Each has another result in billing."""

from __future__ import annotations

from django.db import models


class Card(models.TextChoices):
    GOOD = "good", "Good card"
    FLAKY = "flaky", "Flaky card: fails twice, then works"
    LUNAR = "lunar", "Lunar card: fails while its provider is down"
    INVALID = "invalid", "Invalid card: no use in trying again"
