"""The application under load; it has no migrations."""

from __future__ import annotations

from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "benchmarks.ledger"
    label = "ledger"
