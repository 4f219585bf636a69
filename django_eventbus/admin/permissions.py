"""Who may see and change dead letters, per queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from django.db import DEFAULT_DB_ALIAS
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter, FailureGroup, Queue
from django_eventbus.subscriptions.subscription import registry

Verb = Literal["view", "redrive", "edit", "discard", "see_sensitive"]


def permission_for(verb: Verb) -> str:
    return f"eventbus.{verb}_deadletter"


def may(user: Any, verb: Verb, queue: str = "") -> bool:
    """Whether *user* may do it; with a *queue*, whether they may do it there."""
    return not denial_for(user, verb, queue)


def denial_for_all(user: Any, verb: Verb, queues: Iterable[str]) -> str:
    """Say why *user* may not do it on each of *queues*; "" if they may."""
    return next(filter(None, (denial_for(user, verb, queue) for queue in ("", *queues))), "")


def may_see(user: Any, queues: Iterable[str]) -> bool:
    """Whether the setting PERMISSION lets *user* see each of *queues*; Django's permissions aside."""
    allows = conf.permission
    return not allows or all(allows(user, "view", queue) for queue in queues)


def visible_queues(user: Any) -> list[str]:
    """Return the present and former queues of this project that *user* may see."""
    measured = Queue.objects.using(DEFAULT_DB_ALIAS).values_list("name", flat=True)
    return [each for each in sorted({*registry.queues(), *measured}) if may_see(user, [each])]


def denial_for(user: Any, verb: Verb, queue: str = "") -> str:
    """Say why *user* may not do it, for a disabled button; "" if they may."""
    # Every verb needs the permission to view dead letters as well.
    if missing := missing_permission(user, permission_for("view"), permission_for(verb)):
        return missing
    if queue and (allows := conf.permission) and not allows(user, verb, queue):
        return _("You may not do this on the queue %(queue)s.") % {"queue": queue}
    return ""


def missing_permission(user: Any, *names: str) -> str:
    """Say which of the permissions *names* the user lacks; "" if none."""
    for name in names:
        if not user.has_perm(name):
            return _("You need the permission %(name)s.") % {"name": name}
    return ""


def hidden_on(user: Any, queues: Iterable[str]) -> tuple[str, ...]:
    """Return the rules of REDACT that apply to *user* on any of *queues*."""
    return next(filter(None, (hidden_from(user, queue) for queue in ("", *queues))), ())


def visible_groups(user: Any, using: str) -> QuerySet[FailureGroup]:
    """Return the groups of which *user* may see a queue, as on their pages."""
    groups = FailureGroup.objects.using(using)
    if not conf.permission:
        return groups
    letters = DeadLetter.objects.using(using).order_by()
    queues = [
        each for each in letters.values_list("queue", flat=True).distinct() if may_see(user, [each])
    ]
    return groups.filter(pk__in=letters.filter(queue__in=queues).values("fingerprint"))


def hidden_from(user: Any, queue: str = "") -> tuple[str, ...]:
    """Return the rules of REDACT that apply to *user*; none if they may see sensitive data."""
    return () if may(user, "see_sensitive", queue) else conf.redact
