"""The buttons of what can be done to dead letters, on the pages that show them."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import ModelAdmin
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from django_eventbus.admin.edit import edit_refusal
from django_eventbus.admin.pages import Button, button, url_of
from django_eventbus.models import DeadLetter
from django_eventbus.permissions import Verb
from django_eventbus.selections import Selection

#: The name of the page, its label, the right that it takes, the states in which it makes sense.
_VERBS: tuple[tuple[str, str | Promise, Verb, tuple[str, ...]], ...] = (
    ("dry_run", gettext_lazy("Re-drive…"), "redrive", DeadLetter.REDRIVABLE),
    ("discard", gettext_lazy("Discard…"), "discard", DeadLetter.REDRIVABLE),
    ("ignore", gettext_lazy("Ignore until…"), "discard", DeadLetter.WAITING),
    ("restore", gettext_lazy("Restore…"), "discard", (DeadLetter.State.DISCARDED,)),
)


def buttons_for(
    screen: ModelAdmin[Any], user: Any, selection: Selection, query: str
) -> list[Button]:
    """Return what may be done to *selection*, by the state that it asks for; *query* names it."""
    asked = {term.value for term in selection.terms if term.name == "state"}
    return [
        button(user, right, str(label), url_of(screen, page, query=query))
        for page, label, right, states in _VERBS
        if not asked or asked.intersection(states)
    ]


def buttons_of(screen: ModelAdmin[Any], user: Any, letter: DeadLetter) -> list[Button]:
    """Return what may be done to one dead letter in its state."""
    query = f"id={letter.pk}"
    found = [
        button(user, right, str(label), url_of(screen, page, query=query), queue=letter.queue)
        for page, label, right, states in _VERBS
        if letter.state in states
    ]
    return [*found, *_edit(screen, user, letter)]


def _edit(screen: ModelAdmin[Any], user: Any, letter: DeadLetter) -> list[Button]:
    if letter.state not in DeadLetter.REDRIVABLE:
        return []
    label, url = gettext_lazy("Edit and re-drive…"), url_of(screen, "edit", letter.pk)
    return [Button(label=str(label), url=url, why_not=edit_refusal(user, letter))]
