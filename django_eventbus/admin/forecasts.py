"""What a page tells of a dry run: its counts in words, an example, and how long it would take."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from django.contrib.admin import ModelAdmin
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from django_eventbus.admin.diffs import DiffLine, diff_of_json
from django_eventbus.admin.excerpts import BODY_LIMIT
from django_eventbus.admin.pages import url_of
from django_eventbus.dry_runs import Forecast, Target
from django_eventbus.durations import rough
from django_eventbus.merge_patches import merged
from django_eventbus.models import DeadLetter
from django_eventbus.permissions import hidden_from
from django_eventbus.redaction import redacted
from django_eventbus.sentences import translated
from django_eventbus.validation import payload_or_none

#: Lines of the table of where it would go.
LINES_LIMIT = 50


def moving(forecast: Forecast, *, is_patched: bool) -> int:
    """Return how many would go out: with a patch, not those that it does not fit."""
    return forecast.count - (forecast.scaled(forecast.invalid) if is_patched else 0)


def concerns_of(forecast: Forecast, *, is_patched: bool) -> list[tuple[str, int, bool]]:
    """Return (what, how many, whether that is an estimate) of what would not go well."""
    invalid = _("payload invalid: they would be re-driven, and parked again")
    if is_patched:
        invalid = _("payload invalid with this patch: the plan would skip them")
    forgotten = _(
        "older than what the inbox remembers: they would run, and may have been handled already"
    )
    sampled = (
        (_("already handled: the inbox would skip them"), forecast.already_handled),
        (forgotten, forecast.forgotten),
        (invalid, forecast.invalid),
        (_("in a plan under way: the second of the two plans skips them"), forecast.planned),
    )
    exact = (
        (
            _("no subscription: nobody here handles them, they would be parked again"),
            forecast.without_subscription,
        ),
        (_("no queue: it is not one of this project's"), forecast.without_queue),
    )
    scaled = [(words, forecast.scaled(count), forecast.is_sampled) for words, count in sampled]
    return [*((words, count, False) for words, count in exact), *scaled]


def lines_of(forecast: Forecast, *, is_patched: bool) -> list[tuple[Target, str]]:
    """Return where it would go, each with what would not go well there; "" if nothing."""
    lines = forecast.targets[:LINES_LIMIT]
    return [(each, ", ".join(_about(each, forecast, is_patched))) for each in lines]


def _about(target: Target, forecast: Forecast, is_patched: bool) -> Iterator[str]:
    if not target.is_queue_here:
        yield _("not a queue of this project")
    elif not target.has_subscription:
        yield _("no subscription")
    if invalid := forecast.invalid_of(target):
        words = _("skipped with this patch: %(count)s")
        if not is_patched:
            words = _("payload invalid: %(count)s")
        count = min(forecast.scaled(invalid), target.count)
        shown = number_format(count, force_grouping=True)
        yield words % {"count": f"≈ {shown}" if forecast.is_sampled else shown}


def problems_of(
    screen: ModelAdmin[Any], forecast: Forecast, using: str
) -> list[tuple[str, str, str]]:
    """Return (URL, name, what is wrong with the payload) of some."""
    keys = [key for key, _why in forecast.problems]
    letters = DeadLetter.objects.using(using).filter(pk__in=keys)
    types = dict(letters.values_list("pk", "type"))
    return [
        (url_of(screen, "change", key), f"{types.get(key, '')} ({key})".strip(), translated(why))
        for key, why in forecast.problems
    ]


def example_of(forecast: Forecast, patch: Any, user: Any, using: str) -> list[DiffLine] | None:
    """Return what *patch* changes in one payload, as far as *user* may see it; None: there is none."""
    if patch is None or forecast.sample is None:
        return None
    letter = DeadLetter.objects.using(using).filter(pk=forecast.sample).first()
    if letter is None or len(letter.body) > BODY_LIMIT:
        return None
    payload, rules = payload_or_none(letter), hidden_from(user, letter.queue)
    sides = (redacted(each, "payload", rules) for each in (payload, merged(payload, patch)))
    return diff_of_json(*sides)


def duration_of(count: int, rate: object, limit: object) -> str:
    """Say how long so many take at what was typed as the rate, or return ""."""
    per_second, most = _number(rate), _number(limit)
    taken = min(count, most or count) / per_second if per_second else 0.0
    return rough(max(taken, 1)) if taken and math.isfinite(taken) else ""


def _number(typed: object) -> float:
    try:
        number = float(str(typed))
    except ValueError:
        return 0.0
    return number if number > 0 and math.isfinite(number) else 0.0
