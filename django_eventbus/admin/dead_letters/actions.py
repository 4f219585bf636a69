"""The buttons of what can be done to dead letters."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import ModelAdmin
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from django_eventbus.admin.dead_letters.edit import edit_denial
from django_eventbus.admin.pages import Button, button, page_url
from django_eventbus.admin.permissions import Verb
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import DeadLetter

#: The name of a page, its label, the permission that it needs, the states that it applies to.
_VERBS: tuple[tuple[str, str | Promise, Verb, tuple[str, ...]], ...] = (
    ("dry_run", gettext_lazy("Re-drive…"), "redrive", DeadLetter.REDRIVABLE),
    ("discard", gettext_lazy("Discard…"), "discard", DeadLetter.REDRIVABLE),
    ("ignore", gettext_lazy("Ignore until…"), "discard", DeadLetter.WAITING),
    ("restore", gettext_lazy("Restore…"), "discard", (DeadLetter.State.DISCARDED,)),
)


def buttons_for(
    model_admin: ModelAdmin[Any], user: Any, selection: Selection, query: str
) -> list[Button]:
    """Return the buttons for *selection*, whose URL has *query*, by the states that it names."""
    named = {term.value for term in selection.terms if term.name == "state"}
    return [
        button(user, right, str(label), page_url(model_admin, page, query=query))
        for page, label, right, states in _VERBS
        if not named or named.intersection(states)
    ]


def buttons_of(model_admin: ModelAdmin[Any], user: Any, letter: DeadLetter) -> list[Button]:
    """Return the buttons for one dead letter in its state."""
    query = f"id={letter.pk}"
    buttons = [
        button(
            user, right, str(label), page_url(model_admin, page, query=query), queue=letter.queue
        )
        for page, label, right, states in _VERBS
        if letter.state in states
    ]
    if letter.state in DeadLetter.REDRIVABLE:
        label, url = gettext_lazy("Edit and re-drive…"), page_url(model_admin, "edit", letter.pk)
        buttons.append(Button(label=str(label), url=url, denial=edit_denial(user, letter)))
    return buttons
