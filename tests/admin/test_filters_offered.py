"""The lists of the admin filter by what they offer, and by nothing else."""

from __future__ import annotations

import pytest
from django.contrib import admin

from django_eventbus.admin.model_admin import PlainReadOnlyAdmin
from django_eventbus.models import InboxRecord, OutboxEvent, Plan
from tests.admin.test_admin import user_with
from tests.support.tables import table

pytestmark = pytest.mark.django_db

SCREENS = {
    model._meta.model_name: screen
    for model, screen in admin.site._registry.items()
    if isinstance(screen, PlainReadOnlyAdmin)
}
SECRET = "Bearer 4711"
#: Lookups of a text: each tells something of a value that the page does not show.
LOOKUPS = ("", "__exact", "__contains", "__startswith", "__regex", "__gt", "__in")


@pytest.fixture
def client(db):
    return user_with(*(f"view_{name}" for name in SCREENS))


@pytest.fixture
def rows() -> None:
    OutboxEvent.objects.create(
        message_id="m1", type="a" * 40, body=b'{"card": 1}', headers={"authorization": SECRET}
    )
    InboxRecord.objects.create(message_id="m1", subscription="charge", queue="q", type="a")
    Plan.objects.create(patch={"password": SECRET}, in_flight=1, fail_percent=50)


@table(
    "path",
    [
        "outboxevent/?headers__authorization__startswith=Bearer",
        "outboxevent/?headers__has_key=authorization",
        f"outboxevent/?body__contains={b'card'.hex()}",
        r"outboxevent/?type__regex=^((a*)*\2)*b$",
        "outboxevent/?error__contains=x",
        "inboxrecord/?error__startswith=x",
        "plan/?patch__password__startswith=Bearer",
        "plan/?filter__contains=password",
        "plan/?planned__dead_letter__headers__authorization__startswith=Bearer",
        "plan/?planned__dead_letter__payload__contains=x",
        "auditentry/?outcome__patch__contains=x",
        "auditentry/?why__startswith=x",
        "queue/?tiers__has_key=x",
    ],
)
def test_a_hidden_value_cannot_be_guessed_by_a_lookup_of_django(path, client, rows):
    assert client.get(f"/admin/eventbus/{path}").status_code == 400


def test_a_list_filters_by_columns_that_it_offers_only(client):
    allowed = {
        name: {
            term
            for column in screen.opts.get_fields()
            for term in (f"{column.name}{lookup}" for lookup in LOOKUPS)
            if name != "deadletter" and screen.lookup_allowed(term, "x", None)
        }
        for name, screen in SCREENS.items()
    }

    assert {name: terms for name, terms in allowed.items() if terms} == {
        "auditentry": {"verb__exact"},
        "inboxrecord": {"state__exact", "message_id__exact", "type", "queue", "subscription"},
        "outage": {"kind__exact", "part__exact"},
        "outboxevent": {"state__exact", "message_id__exact", "type", "queue", "subscription"},
        "plan": {"action__exact", "state__exact"},
        "worker": {"kind__exact", "service"},
    }


@table(
    "path",
    [
        "outboxevent/?state__exact=ready",
        "outboxevent/?message_id__exact=m1",
        "outboxevent/?type=a&queue=q&subscription=charge",
        "outboxevent/?created_at__gte=2020-01-01T00:00:00Z&created_at__lt=2030-01-01T00:00:00Z",
        "inboxrecord/?message_id__exact=m1",
        "inboxrecord/?subscription=charge&state__exact=handled",
        "plan/?action__exact=redrive",
        "worker/?kind__exact=relay&service=shop",
        "outage/?part__exact=relay",
        "auditentry/?verb__exact=discard",
    ],
)
def test_a_list_answers_the_filters_that_pages_link_to(path, client, rows):
    assert client.get(f"/admin/eventbus/{path}").status_code == 200
