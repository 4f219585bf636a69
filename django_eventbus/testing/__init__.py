"""For the tests of projects: what was published, and what becomes of it, without a broker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django_eventbus.outcomes import Defer as Defer
    from django_eventbus.outcomes import Duplicate as Duplicate
    from django_eventbus.outcomes import Handled as Handled
    from django_eventbus.outcomes import Park as Park
    from django_eventbus.outcomes import Retry as Retry
    from django_eventbus.outcomes import Skipped as Skipped
    from django_eventbus.testing.bus import EventBus as EventBus
    from django_eventbus.testing.bus import NotQuiet as NotQuiet
    from django_eventbus.testing.deliveries import Delivered as Delivered
    from django_eventbus.testing.test_case import EventBusMixin as EventBusMixin

_HOMES = {
    "Defer": "django_eventbus.outcomes",
    "Delivered": "django_eventbus.testing.deliveries",
    "Duplicate": "django_eventbus.outcomes",
    "EventBus": "django_eventbus.testing.bus",
    "EventBusMixin": "django_eventbus.testing.test_case",
    "Handled": "django_eventbus.outcomes",
    "NotQuiet": "django_eventbus.testing.bus",
    "Park": "django_eventbus.outcomes",
    "Retry": "django_eventbus.outcomes",
    "Skipped": "django_eventbus.outcomes",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    # Lazy, because pytest loads the plugin beside this file before Django has settings.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
