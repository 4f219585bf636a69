"""Who may do what: Django's permissions, and per queue if the project says so."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User

from django_eventbus.permissions import may, may_everywhere, permission_for, why_not

pytestmark = pytest.mark.django_db


def only_billing(user, verb, queue):
    return verb == "view" or queue == "billing"


def someone(*verbs):
    user = User.objects.create(username="ada")
    names = [f"{verb}_deadletter" for verb in verbs]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    return User.objects.get(pk=user.pk)


@pytest.mark.parametrize("verb", ["view", "redrive", "edit", "discard", "see_sensitive"])
def test_each_verb_has_a_permission_of_its_own(verb):
    user = someone("view", verb)

    assert may(user, verb)
    others = {"view", "redrive", "edit", "discard", "see_sensitive"} - {"view", verb}
    assert not any(may(user, each) for each in others)


def test_whoever_cannot_see_dead_letters_cannot_re_drive_them():
    user = someone("redrive")

    assert why_not(user, "redrive") == "You need the permission eventbus.view_deadletter."


def test_the_reason_names_the_permission_that_is_missing():
    words = f"You need the permission {permission_for('discard')}."

    assert why_not(someone("view"), "discard") == words


def test_a_project_may_decide_per_queue(settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": "tests.test_permissions.only_billing"}
    user = someone("view", "redrive")

    assert may(user, "redrive")
    assert may(user, "redrive", "billing")
    assert why_not(user, "redrive", "shipping") == "You may not do this on the queue shipping."
    assert not may_everywhere(user, "redrive", ["billing", "shipping"])
    assert may_everywhere(user, "view", ["billing", "shipping"])
