"""PERMISSION: what is on a queue is shown to, and changed by, those only who may."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_eventbus import publish
from django_eventbus.conf import conf
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import DeadLetter, FailureGroup, InboxRecord, OutboxEvent, Plan, Queue
from django_eventbus.redrive import plans
from django_eventbus.redrive.letters import redrive
from tests.admin.test_admin import page_of, subscribed, text, user_with

DASHBOARD = "/admin/eventbus/"
GROUPS = f"{DASHBOARD}deadletter/"
PLANS = f"{DASHBOARD}plan/"
QUEUES = f"{DASHBOARD}queue/"
INBOX = f"{DASHBOARD}inboxrecord/"
OUTBOX = f"{DASHBOARD}outboxevent/"
MODELS = ("deadletter", "plan", "queue", "inboxrecord", "outboxevent", "worker")
RIGHTS = (*(f"view_{each}" for each in MODELS), "redrive_deadletter", "discard_deadletter")


def only_shipping(user, verb, queue) -> bool:
    return queue.endswith("shipping")


def only_looking(user, verb, queue) -> bool:
    return verb == "view" or queue.endswith("shipping")


@pytest.fixture
def letters(bus) -> dict[str, DeadLetter]:
    """A dead letter on a queue for everybody, and one on a secret queue."""
    subscribed(bus, "ship", queue="shipping")
    subscribed(bus, "pay", queue="secret")
    publish("order.placed", {"order_id": 42})
    bus.drain()
    for name in ("shipping", "secret"):
        Queue.objects.create(name=conf.queue(name), service=conf.service)
    return {each.subscription: each for each in DeadLetter.objects.all()}


@pytest.fixture
def client(letters, settings) -> Client:
    """Somebody who has every right, on one queue."""
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_shipping}
    return user_with(*RIGHTS)


def all_but_secrets_of_payments(user, verb, queue) -> bool:
    return verb != "see_sensitive" or queue.endswith("shipping")


def group_of(letter: DeadLetter) -> str:
    return f"{GROUPS}groups/{letter.fingerprint}/"


def plan_over(*letters: DeadLetter) -> Plan:
    selection = Selection.of([("id", str(each.pk)) for each in letters])
    made = plans.make_plan(selection, by="ada", reason="mended", using="default")
    return plans.start(made.pk, by="ada", using="default")


def test_a_group_of_a_queue_that_is_not_for_the_user_is_not_found(client, letters):
    decision = {"verb": "resolve", "note": "seen to"}

    assert client.get(group_of(letters["pay"])).status_code == 404
    assert client.post(group_of(letters["pay"]), decision).status_code == 404
    assert client.post(group_of(letters["ship"]), decision).status_code == 302
    statuses = dict(FailureGroup.objects.values_list("subscription", "status"))
    assert statuses == {"ship": "resolved", "pay": "new"}


def test_a_group_on_two_queues_shows_those_of_the_user_s_and_is_not_theirs_to_decide(
    client, letters
):
    shared = letters["ship"].fingerprint
    DeadLetter.objects.update(fingerprint=shared)

    shown = client.get(group_of(letters["ship"]))

    assert shown.context["card"].group.count == 1
    assert [row.letter.pk for row in shown.context["rows"]] == [letters["ship"].pk]
    assert "You may not do this on the queue" in text(shown)
    answer = client.post(group_of(letters["ship"]), {"verb": "resolve"})
    assert answer.status_code == 403
    assert FailureGroup.objects.get(pk=shared).status == "new"


def test_a_group_is_decided_about_by_who_may_re_drive_on_its_queues(client, letters, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_looking}

    assert "You may not do this on the queue" in text(client.get(group_of(letters["pay"])))
    assert client.post(group_of(letters["pay"]), {"verb": "resolve"}).status_code == 403


def test_a_plan_knows_the_queues_that_it_touches(letters):
    plan = plan_over(*letters.values())

    assert plan.queues == sorted(conf.queue(name) for name in ("secret", "shipping"))


def test_a_plan_that_touches_a_queue_that_is_not_for_the_user_is_not_found(client, letters):
    theirs, both = plan_over(letters["ship"]), plan_over(*letters.values())

    assert [each.pk for each in client.get(PLANS).context["cl"].result_list] == [theirs.pk]
    assert client.get(f"{PLANS}{theirs.pk}/change/").status_code == 200
    for path in ("change/", "progress/"):
        assert client.get(f"{PLANS}{both.pk}/{path}").status_code == 404
    assert client.post(f"{PLANS}{both.pk}/cancel/now/").status_code == 404
    assert client.post(f"{PLANS}{theirs.pk}/cancel/now/").status_code == 302
    assert list(Plan.objects.order_by("pk").values_list("state", flat=True)) == [
        "cancelled",
        "canary",
    ]


def test_a_plan_is_steered_by_who_may_do_its_action_on_its_queues(client, letters, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_looking}
    plan = plan_over(letters["pay"])

    assert "You may not do this on the queue" in text(client.get(f"{PLANS}{plan.pk}/change/"))
    assert client.post(f"{PLANS}{plan.pk}/cancel/now/").status_code == 403


def test_a_queue_that_is_not_for_the_user_is_not_found(client):
    seen, unseen = conf.queue("shipping"), conf.queue("secret")

    assert [each.name for each in client.get(QUEUES).context["cl"].result_list] == [seen]
    assert client.get(page_of(Queue.objects.get(name=seen))).status_code == 200
    assert client.get(page_of(Queue.objects.get(name=unseen))).status_code == 404


def test_inbox_records_of_queues_that_are_not_for_the_user_are_not_shown(client):
    seen = InboxRecord.objects.get(subscription="ship")
    unseen = InboxRecord.objects.get(subscription="pay")

    assert list(client.get(INBOX).context["cl"].result_list) == [seen]
    assert client.get(page_of(seen)).status_code == 200
    assert client.get(page_of(unseen)).status_code == 302


def test_what_is_addressed_to_a_queue_that_is_not_for_the_user_is_not_in_their_outbox(
    client, letters
):
    redrive([each.pk for each in letters.values()], by="ada", using="default")
    published = OutboxEvent.objects.get(queue="")
    seen = OutboxEvent.objects.get(queue=conf.queue("shipping"))
    unseen = OutboxEvent.objects.get(queue=conf.queue("secret"))

    assert set(client.get(OUTBOX).context["cl"].result_list) == {published, seen}
    assert client.get(page_of(unseen)).status_code == 302
    assert client.get(f"{OUTBOX}{unseen.pk}/body/").status_code == 404


def test_no_page_links_to_what_is_on_a_queue_that_is_not_for_the_user(client, letters):
    published = OutboxEvent.objects.get(queue="")

    for row in (published, letters["ship"]):
        shown = client.get(page_of(row)).content.decode()
        assert page_of(letters["pay"]) not in shown
        assert page_of(InboxRecord.objects.get(subscription="pay")) not in shown
    assert page_of(letters["ship"]) in client.get(page_of(published)).content.decode()


def test_the_dashboard_has_the_queues_and_plans_of_the_user_s_queues(client, letters):
    theirs, both = plan_over(letters["ship"]), plan_over(*letters.values())
    plans.pause(both.pk, by="ada", using="default")

    shown = client.get(DASHBOARD)

    assert conf.queue("shipping") in text(shown)
    assert conf.queue("secret") not in text(shown)
    assert f"{PLANS}{theirs.pk}/change/" in shown.content.decode()
    assert f"{PLANS}{both.pk}/change/" not in shown.content.decode()


def test_without_permission_nothing_asks_which_queues_there_are(admin_client, letters):
    plan_over(*letters.values())

    for path in (PLANS, INBOX, OUTBOX, group_of(letters["pay"])):
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(path).status_code == 200
        asked = r'DISTINCT "eventbus_\w+"."queue|FROM "eventbus_queue"'
        assert not [each["sql"] for each in queries if re.search(asked, each["sql"])]


# What REDACT hides, on one queue and not on another.

SEER = (*RIGHTS, "edit_deadletter", "see_sensitive_deadletter")


@pytest.fixture
def half_seer(letters, settings) -> Client:
    """Somebody who has every right, but for what is hidden on one queue."""
    redact = ["order_id"]
    settings.EVENTBUS = {
        **settings.EVENTBUS, "PERMISSION": all_but_secrets_of_payments, "REDACT": redact,
    }  # fmt: skip
    return user_with(*SEER)


def test_what_is_hidden_on_its_queue_is_not_edited(half_seer, letters):
    seen, hidden = (f"{GROUPS}{letters[name].pk}/edit/" for name in ("ship", "pay"))

    refused = half_seer.get(hidden)

    assert refused.status_code == 403
    assert "You may not do this on the queue" in refused.content.decode()
    assert half_seer.get(seen).status_code == 200


@pytest.mark.parametrize("where", ["", "&queue={secret}", "&queue={secret}&queue={shipping}"])
def test_what_is_hidden_on_a_queue_that_is_meant_cannot_be_guessed(half_seer, where):
    names = {name: conf.queue(name) for name in ("secret", "shipping")}
    query = "payload.order_id=42&state=open" + where.format(**names)

    for path in (f"{GROUPS}list/", GROUPS):
        assert "payload.order_id is hidden from you." in text(half_seer.get(f"{path}?{query}"))
    for path in ("dry-run/", "export/", "discard/"):
        answer = half_seer.get(f"{GROUPS}{path}?{query}&format=csv")
        assert answer.status_code == 400


def test_what_is_hidden_on_another_queue_can_be_filtered_by(half_seer, letters, settings):
    query = f"payload.order_id=42&state=open&queue={conf.queue('shipping')}"

    shown = half_seer.get(f"{GROUPS}list/?{query}")

    assert [row.letter.pk for row in shown.context["rows"]] == [letters["ship"].pk]
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_shipping}
    everywhere = half_seer.get(f"{GROUPS}list/?payload.order_id=42&state=open")
    assert [row.letter.pk for row in everywhere.context["rows"]] == [letters["ship"].pk]


def test_the_page_of_a_dead_letter_that_is_not_for_the_user_says_so(client, letters):
    shown = client.get(page_of(letters["pay"]))

    assert shown.status_code == 403
    assert "You may not see the dead letters of this queue." in shown.text
    assert conf.queue("secret") not in shown.text
    assert client.get(page_of(letters["ship"])).status_code == 200
    assert client.get(f"{GROUPS}987654/change/").status_code == 302
