"""Checks of the databases that the tables are in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from django_eventbus.conf import conf
from django_eventbus.subscriptions.subscription import registry


def check_databases(**kwargs: Any) -> Iterator[CheckMessage]:
    for each in registry:
        if each.using not in connections:
            yield Error(
                f"The subscription {each.name!r} uses the database {each.using!r}, "
                "which is not in DATABASES.",
                hint="Its inbox lives where its data lives: name that database with using=.",
                id="eventbus.E008",
            )


def check_vendor(**kwargs: Any) -> Iterator[CheckMessage]:
    for alias in _known_databases():
        if connections[alias].vendor not in ("postgresql", "sqlite"):
            yield Error(
                f"The database {alias!r} is {connections[alias].display_name}, which "
                "django_eventbus does not support.",
                hint="Use PostgreSQL, or SQLite on a single machine.",
                id="eventbus.E009",
            )
        elif _driver(alias) == "psycopg2":
            # Its errors have no sqlstate, which is needed to recognize a deadlock or an outage.
            yield Error(
                f"The database {alias!r} is used through psycopg2, whose errors do not "
                "distinguish an outage from a failure.",
                hint="pip install 'django-eventbus[postgres]': Django prefers psycopg 3 to it.",
                id="eventbus.E009",
            )


def _driver(alias: str) -> str:
    return getattr(getattr(connections[alias], "Database", None), "__name__", "")


def check_sqlite(**kwargs: Any) -> Iterator[CheckMessage]:
    for alias in _known_databases():
        connection = connections[alias]
        if connection.vendor != "sqlite":
            continue
        options = connection.settings_dict.get("OPTIONS", {})
        is_immediate = str(options.get("transaction_mode", "")).upper() == "IMMEDIATE"
        if not is_immediate or "WAL" not in str(options.get("init_command", "")).upper():
            yield Warning(
                f"The SQLite database {alias!r} will often be locked.",
                hint="Set OPTIONS to {'transaction_mode': 'IMMEDIATE', 'timeout': 20, "
                "'init_command': 'PRAGMA journal_mode=WAL;'}.",
                id="eventbus.W001",
            )


def check_time_zones(**kwargs: Any) -> Iterator[CheckMessage]:
    if not conf.has_time_zones:
        yield Error(
            "USE_TZ is off, and the times of messages from elsewhere have a zone.",
            hint="Set USE_TZ = True in the settings.",
            id="eventbus.E017",
        )


def _known_databases() -> list[str]:
    return [alias for alias in registry.databases() if alias in connections]
