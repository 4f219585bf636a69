"""Which words may stand in labels: strangers choose types and headers, and each is a series."""

from __future__ import annotations

from django_eventbus.events import Event, event_classes, is_type
from django_eventbus.observability.measurements import OTHER
from django_eventbus.subscriptions import registry

#: Types in labels that are declared nowhere: taken through a wildcard, or only published.
MOST_UNDECLARED = 200


class EventTypes:
    """The types that this project knows, as labels; every other one is the same one."""

    def __init__(self, most: int = MOST_UNDECLARED) -> None:
        self.most = most
        self._known: set[str] = set()
        self._undeclared = 0

    def label(self, event_type: str, *, is_taken: bool) -> str:
        """Return the type, or OTHER; *is_taken* says that this project published or subscribed it."""
        if event_type in self._known or self._is_admitted(event_type, is_taken):
            return event_type
        return OTHER

    def _is_admitted(self, event_type: str, is_taken: bool) -> bool:
        # What is refused is not kept: there is no end to it.
        if not is_type(event_type):
            return False
        if not _is_declared(event_type):
            if not is_taken or self._undeclared >= self.most:
                return False
            self._undeclared += 1
        self._known.add(event_type)
        return True


def subscription_label(name: str) -> str:
    """Return the name of the subscription that is or was called *name*; "" for none."""
    if not name:
        return ""
    found = registry.named(name)
    return found.name if found else OTHER


def is_known(label: str) -> bool:
    """Whether *label* is the name of something that is here."""
    return label not in ("", OTHER)


def queue_label(queue: str) -> str:
    return queue if queue in registry.queues() else OTHER


def _is_declared(event_type: str) -> bool:
    return any(event_type == each.pattern for each in registry) or any(
        event_type == each.event_type for each in event_classes(Event)
    )
