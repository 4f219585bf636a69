"""Test support for projects: check and deliver published events without a broker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_eventbus.subscriptions.outcomes import Defer as Defer
    from django_eventbus.subscriptions.outcomes import Duplicate as Duplicate
    from django_eventbus.subscriptions.outcomes import Handled as Handled
    from django_eventbus.subscriptions.outcomes import Park as Park
    from django_eventbus.subscriptions.outcomes import Retry as Retry
    from django_eventbus.subscriptions.outcomes import Skipped as Skipped
    from django_eventbus.testing.bus import EventBus as EventBus
    from django_eventbus.testing.bus import NotQuiet as NotQuiet
    from django_eventbus.testing.deliver import Delivered as Delivered
    from django_eventbus.testing.test_case import EventBusMixin as EventBusMixin

_HOMES = {
    "Defer": "django_eventbus.subscriptions.outcomes",
    "Delivered": "django_eventbus.testing.deliver",
    "Duplicate": "django_eventbus.subscriptions.outcomes",
    "EventBus": "django_eventbus.testing.bus",
    "EventBusMixin": "django_eventbus.testing.test_case",
    "Handled": "django_eventbus.subscriptions.outcomes",
    "NotQuiet": "django_eventbus.testing.bus",
    "Park": "django_eventbus.subscriptions.outcomes",
    "Retry": "django_eventbus.subscriptions.outcomes",
    "Skipped": "django_eventbus.subscriptions.outcomes",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    # Lazy, because pytest loads the plugin beside this file before Django has settings.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
