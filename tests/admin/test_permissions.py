"""Who may do what: Django's permissions, and per queue if the project says so."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User

from django_eventbus.admin.permissions import denial_for, denial_for_all, may, permission_for
from tests.support.tables import table

pytestmark = pytest.mark.django_db


def only_billing(user, verb, queue):
    return verb == "view" or queue == "billing"


def someone(*verbs):
    user = User.objects.create(username="ada")
    names = [f"{verb}_deadletter" for verb in verbs]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    return User.objects.get(pk=user.pk)


@table("verb", ["view", "redrive", "edit", "discard", "see_sensitive"])
def test_each_verb_has_a_permission_of_its_own(verb):
    user = someone("view", verb)

    assert may(user, verb)
    others = {"view", "redrive", "edit", "discard", "see_sensitive"} - {"view", verb}
    assert not any(may(user, each) for each in others)


def test_whoever_cannot_see_dead_letters_cannot_re_drive_them():
    user = someone("redrive")

    assert denial_for(user, "redrive") == "You need the permission eventbus.view_deadletter."


def test_the_reason_names_the_permission_that_is_missing():
    words = f"You need the permission {permission_for('discard')}."

    assert denial_for(someone("view"), "discard") == words


def test_a_project_may_decide_per_queue(settings):
    settings.EVENTBUS = {
        **settings.EVENTBUS,
        "PERMISSION": "tests.admin.test_permissions.only_billing",
    }
    user = someone("view", "redrive")

    assert may(user, "redrive")
    assert may(user, "redrive", "billing")
    assert denial_for(user, "redrive", "shipping") == "You may not do this on the queue shipping."
    assert denial_for_all(user, "redrive", ["billing", "shipping"])
    assert not denial_for_all(user, "view", ["billing", "shipping"])
