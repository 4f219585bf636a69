"""Every URL of the admin, also one that is added later, with every permission alone.

The rule: a page answers a user only if they have the view permission of its model; those in NEEDS
need another permission beside it; nobody reaches those in NEVER; and no request of a user with
one permission, and no form without a CSRF token, changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.test import Client
from django.urls import get_resolver, reverse
from django.utils import timezone

from django_eventbus import publish
from django_eventbus.conf import conf
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.events.message import uuid7
from django_eventbus.models import (
    AuditEntry,
    DeadLetter,
    InboxRecord,
    Outage,
    OutboxEvent,
    Queue,
    Worker,
)
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import discard_selected
from tests.admin.test_admin import subscribed

TOKEN = "a" * 32
#: Pages that the view permission of their model alone does not open.
NEEDS = {
    "deadletter_body": "see_sensitive_deadletter",
    "deadletter_edit": "edit_deadletter",
    "outboxevent_body": "see_sensitive_deadletter",
    "outboxevent_publish_again": "publish_again_outboxevent",
    "outboxevent_publish_again_selected": "publish_again_outboxevent",
    "outboxevent_cancel": "cancel_outboxevent",
    "outboxevent_cancel_selected": "cancel_outboxevent",
}
#: Django's own pages for changes that the app does not offer.
NEVER = ("_add", "_delete")
#: Pages that answer forms only.
FORMS_ONLY = ("plan_verb",)
#: A page that is answered by a file is recorded in the audit.
RECORDED = "deadletter_export"
#: What a form sends, for each page that changes something.
FORMS = {
    "deadletter_discard": {"reason": "seen to"},
    "deadletter_ignore": {"reason": "", "until": "2099-01-01T00:00"},
    "deadletter_restore": {"reason": "seen to"},
    "deadletter_dry_run": {"canary": 0, "rate": 1, "in_flight": 1, "fail_percent": 50, "tries": 1},
    "deadletter_edit": {"payload": '{"order_id": 1}', "reason": "typo", "round": 0, "send": "1"},
    "deadletter_group": {"verb": "resolve", "note": "seen to"},
    "outboxevent_publish_again": {},
    "outboxevent_publish_again_selected": {},
    "outboxevent_cancel": {"reason": "no"},
    "outboxevent_cancel_selected": {"reason": "no"},
    "plan_verb": {},
    "queue_peek": {"limit": 1},
    "queue_redrive": {"limit": 1},
}


def names() -> Iterator[str]:
    """Yield the name of each page of the app's models."""
    _prefix, admin = get_resolver().namespace_dict["admin"]
    for name in admin.reverse_dict:
        if isinstance(name, str) and name.startswith("eventbus_"):
            yield name.removeprefix("eventbus_")


@pytest.fixture
def rows(bus, transactional_db) -> dict[str, object]:
    subscribed(bus, "ship", queue="shipping")
    for number in range(2):
        publish("order.placed", {"order_id": number})
    bus.drain()
    first, second = DeadLetter.objects.order_by("pk")
    made = plans.make_plan(Selection.of_ids([first.pk]), by="ada", reason="mended", using="default")
    discard_selected(Selection.of_ids([second.pk]), by="ada", reason="no", using="default")
    return {
        "deadletter": first,
        "discarded": second,
        "plan": made,
        "queue": Queue.objects.create(
            name=conf.queue("shipping"), service=conf.service, dlq="dlq", dlq_messages=1
        ),
        "inboxrecord": InboxRecord.objects.first(),
        "auditentry": AuditEntry.objects.first(),
        "failed": OutboxEvent.objects.create(type="a", body=b"{}", state="failed"),
        "outboxevent": OutboxEvent.objects.create(
            message_id="s", type="a", body=b"{}", state="scheduled",
            due_at=timezone.now() + timedelta(days=1),
        ),
        "worker": Worker.objects.create(
            kind="both", service=conf.service, host="h", pid=1, version="1",
            queues=[conf.queue("shipping")], expected_at=timezone.now() + timedelta(days=1),
        ),
        "outage": Outage.objects.create(worker_id=uuid7(), host="h", part="relay", kind="io", began_at=timezone.now()),
    }  # fmt: skip


def url_of(name: str, rows) -> str:
    """Return the URL of a page, for a row that it applies to."""
    model = name.partition("_")[0]
    row = rows["failed"] if "publish_again" in name else rows[model]
    values = {
        "object_id": row.pk,
        "plan_id": rows["plan"].pk,
        "verb": "cancel",
        "fingerprint": rows["deadletter"].fingerprint,
    }
    _prefix, admin = get_resolver().namespace_dict["admin"]
    ((_, wanted),), *_rest = admin.reverse_dict.getlist(f"eventbus_{name}")[0]
    url = reverse(f"admin:eventbus_{name}", kwargs={each: values[each] for each in wanted})
    return f"{url}?{selection_of(name, rows)}&format=csv" if model == "deadletter" else url


def selection_of(name: str, rows) -> str:
    return f"id={rows['discarded' if 'restore' in name else 'deadletter'].pk}"


def form_of(name: str, rows) -> dict[str, object]:
    row = rows["failed"] if "publish_again" in name else rows["outboxevent"]
    is_outbox = name.startswith("outboxevent")
    selection = f"{row.pk}_{row.state}" if is_outbox else selection_of(name, rows)
    return {"selection": selection, "reason": "", **FORMS.get(name, {})}


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user(f"user of {' '.join(codenames)}"[:150], is_staff=True)
    permissions = Permission.objects.filter(content_type__app_label="eventbus")
    user.user_permissions.set(permissions.filter(codename__in=codenames))
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    client.cookies["csrftoken"] = TOKEN
    return client


def post(client: Client, name: str, rows, *, token: str = TOKEN):
    return client.post(url_of(name, rows), form_of(name, rows), headers={"X-CSRFToken": token})


def tables() -> dict[str, list]:
    models = [*apps.get_app_config("eventbus").get_models(), LogEntry]
    return {each._meta.label: list(each.objects.order_by("pk").values_list()) for each in models}


def changed(before: dict[str, list]) -> list[str]:
    after = tables()
    return [name for name in after if after[name] != before[name]]


def permissions() -> tuple[list[str], list[str]]:
    """Return the permissions that the app uses, and those that Django adds for each model."""
    found = Permission.objects.filter(content_type__app_label="eventbus")
    codenames = sorted(found.values_list("codename", flat=True))
    models = {name.partition("_")[0] for name in names()}
    unused = [
        each
        for each in codenames
        if (verb := each.partition("_")[0]) in ("add", "change", "delete")
        or (verb == "view" and each.partition("_")[2] not in models)
    ]
    return [each for each in codenames if each not in unused], unused


def test_each_page_answers_its_own_permission_and_no_other(rows):
    used, unused = permissions()
    before = tables()
    wrong = []
    # Those that no page uses together: if all of them open nothing, neither does one.
    for codenames in ([], unused, *([each] for each in used)):
        client = client_with(*codenames)
        for name in sorted(names()):
            own = f"view_{name.partition('_')[0]}" in codenames
            opens = own and name not in NEEDS and not name.endswith(NEVER)
            shown = client.get(url_of(name, rows)).status_code
            if name in FORMS_ONLY:
                is_right = shown in (403, 405)
            else:
                is_right = shown in (200, 302) if opens else shown == 403
            sent = post(client, name, rows).status_code
            if not is_right or (not own and sent not in (403, 405)):
                wrong.append((codenames, name, shown, sent))

    assert wrong == []
    assert changed(before) == ["eventbus.AuditEntry"]
    entries = AuditEntry.objects.order_by("pk")[len(before["eventbus.AuditEntry"]) :]
    assert {each.verb for each in entries} == {"export"}
    assert {each.by for each in entries} == {"user of view_deadletter"}


def test_no_form_is_accepted_without_its_token(rows):
    used, unused = permissions()
    client, before = client_with(*used, *unused), tables()

    answers = {name: post(client, name, rows, token="").status_code for name in names()}

    assert set(answers.values()) == {403}
    assert changed(before) == []


def test_nobody_is_answered_without_a_login(rows):
    before = tables()

    for name in names():
        for answer in (Client().get(url_of(name, rows)), Client().post(url_of(name, rows))):
            assert answer.status_code == 302, name
            assert answer["Location"].startswith("/admin/login/"), name
    assert changed(before) == []


def test_each_of_these_forms_changes_something_with_every_right_and_the_token(rows):
    client = client_with(*permissions()[0])
    effects = {}
    for name in FORMS:
        with transaction.atomic():
            before = tables()
            effects[name] = (post(client, name, rows).status_code, bool(changed(before)))
            transaction.set_rollback(True)

    assert effects == dict.fromkeys(FORMS, (302, True))


def test_each_page_that_takes_a_form_is_known_above():
    assert set(FORMS) | set(NEEDS) | {*FORMS_ONLY, RECORDED} <= set(names())
