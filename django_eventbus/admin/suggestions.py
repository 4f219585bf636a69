"""What the fields of a filter suggest, and what is said of names that nothing has."""

from __future__ import annotations

from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from django_eventbus.permissions import queues_seen_by, sees
from django_eventbus.selections import Selection
from django_eventbus.subscriptions import registry

_WILDCARDS = ("*", "#")
_ABSENT: dict[str, Promise] = {
    "queue": gettext_lazy("This project has no queue %(name)s."),
    "subscription": gettext_lazy("This project has no subscription %(name)s."),
}


def suggestions_for(user: Any) -> dict[str, list[str]]:
    """Return what *user* may look for, by the name of the filter."""
    seen = [each for each in registry if sees(user, [each.queue])]
    # Of a pattern, nobody knows which types there are.
    types = {each.pattern for each in seen if not any(map(each.pattern.__contains__, _WILDCARDS))}
    return {
        "type": sorted(types),
        "queue": queues_seen_by(user),
        "subscription": sorted({each.record_name for each in seen}),
    }


def absent_in(selection: Selection, user: Any) -> list[str]:
    """Say which queues and subscriptions of *selection* this project does not have."""
    queues = queues_seen_by(user)
    return [
        str(_ABSENT[term.name]) % {"name": term.text}
        for term in selection.terms
        if (term.name == "queue" and term.text not in queues)
        or (term.name == "subscription" and term.text and not registry.named(term.text))
    ]
