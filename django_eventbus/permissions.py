"""Who may do what about dead letters: Django's permissions, and per queue if the project says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from django.db import DEFAULT_DB_ALIAS
from django.utils.translation import gettext as _

from django_eventbus.conf import conf
from django_eventbus.models import Queue
from django_eventbus.subscriptions import registry

Verb = Literal["view", "redrive", "edit", "discard", "see_sensitive"]


def permission_for(verb: Verb) -> str:
    return f"eventbus.{verb}_deadletter"


def may(user: Any, verb: Verb, queue: str = "") -> bool:
    """Whether *user* may do it; with a *queue*, whether they may do it there."""
    return not why_not(user, verb, queue)


def may_everywhere(user: Any, verb: Verb, queues: Iterable[str]) -> bool:
    return all(may(user, verb, queue) for queue in queues)


def why_not_everywhere(user: Any, verb: Verb, queues: Iterable[str]) -> str:
    """Say why *user* may not do it on each of *queues*; "" if they may."""
    return next(filter(None, (why_not(user, verb, queue) for queue in ("", *queues))), "")


def sees(user: Any, queues: Iterable[str]) -> bool:
    """Whether the project lets *user* see what is on each of *queues*; Django's rights aside."""
    allows = conf.permission
    return not allows or all(allows(user, "view", queue) for queue in queues)


def queues_seen_by(user: Any) -> list[str]:
    """Return the queues of this project, of now and before, that *user* may look at."""
    measured = Queue.objects.using(DEFAULT_DB_ALIAS).values_list("name", flat=True)
    return [each for each in sorted({*registry.queues(), *measured}) if sees(user, [each])]


def why_not(user: Any, verb: Verb, queue: str = "") -> str:
    """Say why *user* may not do it, for the title of a disabled button; "" if they may."""
    # Whoever cannot see dead letters cannot do anything about them either.
    for needed in (permission_for("view"), permission_for(verb)):
        if not user.has_perm(needed):
            return _("You need the permission %(name)s.") % {"name": needed}
    if queue and (allows := conf.permission) and not allows(user, verb, queue):
        return _("You may not do this on the queue %(queue)s.") % {"queue": queue}
    return ""


def hidden_from(user: Any, queue: str = "") -> tuple[str, ...]:
    """Return the rules of what REDACT hides from *user*."""
    return () if may(user, "see_sensitive", queue) else conf.redact
