"""The filters of dead letters, as a form and in URLs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import parse_qsl

from django import forms
from django.http import QueryDict
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.permissions import hidden_from, may, may_see, visible_queues
from django_eventbus.conf import conf
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import BadSelection
from django_eventbus.models import DeadLetter
from django_eventbus.subscriptions.subscription import registry

_WILDCARDS = ("*", "#")
_UNKNOWN: dict[str, Promise] = {
    "queue": gettext_lazy("This project has no queue %(name)s."),
    "subscription": gettext_lazy("This project has no subscription %(name)s."),
}


def suggestions_for(user: Any) -> dict[str, list[str]]:
    """Return values that *user* may search for, by the name of the filter."""
    seen = [each for each in registry if may_see(user, [each.queue])]
    # A pattern does not say which types there are.
    types = {each.pattern for each in seen if not any(map(each.pattern.__contains__, _WILDCARDS))}
    return {
        "type": sorted(types),
        "queue": visible_queues(user),
        "subscription": sorted({each.record_name for each in seen}),
    }


def unknown_names(selection: Selection, user: Any) -> list[str]:
    """Say which queues and subscriptions of *selection* this project does not have."""
    queues = visible_queues(user)
    return [
        str(_UNKNOWN[term.name]) % {"name": term.text}
        for term in selection.terms
        if (term.name == "queue" and term.text not in queues)
        or (term.name == "subscription" and term.text and not registry.named(term.text))
    ]


ALL = "all"

#: The parameter with the query of the list that the user came from.
BACK = "back"

#: The parameter that marks a submitted form, in which an empty field means no filter.
FILLED_IN = "filled_in"

#: The parameter with filters that the form has no field for, each as the query of a URL.
KEPT = "kept"
_PARTS = (("header", "headers"), ("payload", "payload"))
_PAIRED = tuple(f"{part}_{half}" for part, _column in _PARTS for half in ("name", "value"))

#: Parameters that are not filters.
_OWN = frozenset(("after", "before", "page", "format", BACK, FILLED_IN, KEPT, *_PAIRED))


class FilterForm(forms.Form):
    """A field for every filter; two fields where a filter has a path and a value."""

    type = forms.CharField(label=gettext_lazy("Event type"))
    queue = forms.CharField(label=gettext_lazy("Queue"))
    subscription = forms.CharField(label=gettext_lazy("Subscription"))
    state = forms.ChoiceField(
        label=gettext_lazy("State"),
        choices=(*DeadLetter.State.choices, (ALL, gettext_lazy("all states"))),
    )
    kind = forms.ChoiceField(
        label=gettext_lazy("Kind"),
        choices=(("", gettext_lazy("any")), *DeadLetter.Kind.choices),
    )
    error_type = forms.CharField(label=gettext_lazy("Error type"))
    error = forms.CharField(label=gettext_lazy("Words of the error"))
    message_id = forms.CharField(label=gettext_lazy("Message id"))
    header_name = forms.CharField(label=gettext_lazy("Header"))
    header_value = forms.CharField(label=gettext_lazy("Header's value"))
    payload_name = forms.CharField(label=gettext_lazy("Payload path"))
    payload_value = forms.CharField(label=gettext_lazy("Payload's value"))
    parked_after = forms.CharField(label=gettext_lazy("Parked after"))
    parked_before = forms.CharField(label=gettext_lazy("Parked before"))
    attempts_min = forms.CharField(label=gettext_lazy("Attempts, at least"))
    attempts_max = forms.CharField(label=gettext_lazy("Attempts, at most"))
    edited = forms.ChoiceField(label=gettext_lazy("Edited"))
    redriven = forms.ChoiceField(label=gettext_lazy("Re-driven before"))
    ignored = forms.ChoiceField(label=gettext_lazy("Ignored for now"))

    def __init__(self, initial: dict[str, str], known: dict[str, list[str]]) -> None:
        super().__init__(initial=initial, auto_id="filter-%s")
        self.known = [(f"filter-{name}-known", values) for name, values in known.items()]
        for name in known:
            self.fields[name].widget.attrs["list"] = f"filter-{name}-known"
        either = (("", _("any")), ("yes", _("yes")), ("no", _("no")))
        for name in ("edited", "redriven", "ignored"):
            self.fields[name] = forms.ChoiceField(label=self.fields[name].label, choices=either)
        hints = {"parked_after": "24h", "parked_before": "2026-01-31T12:00"}
        hints |= {"header_name": "tenant", "payload_name": "order.id"}
        for name, field in self.fields.items():
            field.required = False
            field.widget.attrs["placeholder"] = hints.get(name, "")


def form_of(pairs: list[tuple[str, str]], user: Any) -> dict[str, Any]:
    """Return the form for *user*, filled in with *pairs*, and the pairs that it has no field for."""
    initial: dict[str, str] = {}
    kept: list[tuple[str, str]] = []
    for name, text in pairs:
        fields = _fields_of(name, text)
        if fields and not initial.keys() & fields.keys():
            initial |= fields
        else:
            kept.append((urlencode([(name, text)]), f"{name}={text}"))
    return {"form": FilterForm(initial, suggestions_for(user)), "kept": kept}


def _fields_of(name: str, text: str) -> dict[str, str]:
    part, dot, place = name.partition(".")
    if dot and part in dict(_PARTS):
        return {f"{part}_name": place, f"{part}_value": text}
    field = FilterForm.base_fields.get(name)
    is_shown = text in _CHOICES[name] if name in _CHOICES else bool(text)
    return {name: text} if field and is_shown and name not in _PAIRED else {}


_CHOICES: dict[str, tuple[str, ...]] = {
    "state": (*DeadLetter.State.values, ALL),
    "kind": tuple(DeadLetter.Kind.values),
    **dict.fromkeys(("edited", "redriven", "ignored"), ("yes", "no")),
}


def filters_in(data: QueryDict) -> list[tuple[str, str]]:
    """Return the filters of a URL or a submitted form, unchecked."""
    return [*_named(data), *_paired(data), *_kept(data)]


def _named(data: QueryDict) -> Iterator[tuple[str, str]]:
    for name, texts in data.lists():
        # An empty value in a URL is a filter: subscription= finds dead letters without one.
        if name not in _OWN:
            yield from ((name, text) for text in texts if text or FILLED_IN not in data)


def _paired(data: QueryDict) -> Iterator[tuple[str, str]]:
    for part, _column in _PARTS:
        place = data.get(f"{part}_name", "").strip().removeprefix(f"{part}.")
        text = data.get(f"{part}_value", "")
        # Half a filter is kept, and refused later by its name: without it, all would match.
        if place or text:
            yield f"{part}.{place}", text


def _kept(data: QueryDict) -> Iterator[tuple[str, str]]:
    for query in data.getlist(KEPT):
        yield from parse_qsl(query, keep_blank_values=True)


def canonical(data: QueryDict, *kept: str) -> str:
    """Return the query of *data* with each filter once, by its name."""
    pairs = filters_in(data)
    if not any(name == "state" for name, _text in pairs):
        pairs.append(("state", str(DeadLetter.State.OPEN)))
        if not any(name == "ignored" for name, _text in pairs):
            pairs.append(("ignored", "no"))
    pairs += [(name, data.get(name, "")) for name in kept if data.get(name)]
    return urlencode(pairs)


def selection_in(data: QueryDict) -> Selection:
    """Return the selection that *data* names, or raise BadSelection; limited_to() checks it."""
    pairs = filters_in(data)
    if ("state", ALL) in pairs:
        pairs = [pair for pair in pairs if pair[0] != "state"]
    return Selection.of(pairs)


def _require_visible(selection: Selection, user: Any, queues: Iterable[str]) -> None:
    # Otherwise a user could guess a hidden value, one filter at a time.
    rules = {rule for queue in ("", *queues) for rule in hidden_from(user, queue)}
    for term in selection.terms:
        if term.is_hidden(rules):
            raise BadSelection(_("%(name)s is hidden from you.") % {"name": term.written_name})


def limited_to(user: Any, selection: Selection, using: str) -> Selection:
    """Return *selection*, limited to the queues that *user* may see; raise BadSelection if there is none."""
    if not conf.permission:
        _require_visible(selection, user, ())
        return selection
    asked = [term.text for term in selection.terms if term.name == "queue"]
    rows = DeadLetter.objects.using(using).order_by().values_list("queue", flat=True)
    queues = asked or list(rows.distinct())
    allowed = [each for each in queues if may(user, "view", each)]
    if not allowed and queues:
        if not asked:
            raise BadSelection(_("You may not see the dead letters of any queue."))
        words = _("You may not see the queue %(queue)s.")
        raise BadSelection(words % {"queue": ", ".join(asked)})
    _require_visible(selection, user, allowed)
    if allowed == queues:
        return selection
    others = tuple(term for term in selection.terms if term.name != "queue")
    return Selection((*others, *Selection.of([("queue", each) for each in allowed]).terms))
