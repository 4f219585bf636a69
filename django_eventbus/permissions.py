"""Who may do what about dead letters: Django's permissions, and per queue if the project says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from django.utils.translation import gettext as _

from django_eventbus.conf import conf

Verb = Literal["view", "redrive", "edit", "discard", "see_sensitive"]


def permission_for(verb: Verb) -> str:
    return f"eventbus.{verb}_deadletter"


def may(user: Any, verb: Verb, queue: str = "") -> bool:
    """Whether *user* may do it; with a *queue*, whether they may do it there."""
    return not why_not(user, verb, queue)


def may_everywhere(user: Any, verb: Verb, queues: Iterable[str]) -> bool:
    return all(may(user, verb, queue) for queue in queues)


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
