"""The dashboard: what it shows to whom, and that it stays cheap."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_eventbus import subscribe
from django_eventbus.admin.charts import HEIGHT, path_of
from django_eventbus.conf import conf
from django_eventbus.models import (
    DeadLetter,
    FailureGroup,
    Outage,
    OutboxEvent,
    Plan,
    Queue,
    Worker,
)
from django_eventbus.monitoring.status import open_letters_by_queue
from tests.support.tables import table

pytestmark = pytest.mark.django_db

DASHBOARD = "/admin/eventbus/"
SCRIPT = "<script>alert(1)</script>"


def user_with(*rights: str) -> Client:
    user = User.objects.create_user("ada", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client = Client()
    client.force_login(user)
    return client


def page(client: Client, path: str = DASHBOARD) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


@pytest.fixture
def unroutable() -> OutboxEvent:
    return OutboxEvent.objects.create(state="unroutable", type="a.b", body=b"{}")


def test_the_first_line_leads_to_where_it_is_done(admin_client, no_subscriptions, unroutable):
    found = page(admin_client)

    assert "There is 1 problem:" in found
    link = "/admin/eventbus/outboxevent/?state__exact=unroutable"
    assert (
        f'<a href="{link}">1 event was not delivered: no queue is bound to receive it.</a>' in found
    )


def test_the_admin_s_index_leads_to_the_dashboard(admin_client):
    assert f'href="{DASHBOARD}"' in page(admin_client, "/admin/")


def test_whoever_may_not_see_the_dashboard_is_told_why(no_subscriptions, unroutable):
    found = page(user_with("view_outboxevent"))

    assert "You need the permission eventbus.view_worker." in found
    assert "There is 1 problem" not in found


def test_nothing_links_to_a_page_that_the_user_may_not_see(no_subscriptions, unroutable):
    found = page(user_with("view_worker"))

    assert "1 event was not delivered: no queue is bound to receive it." in found
    assert "/admin/eventbus/outboxevent/" not in found


def test_a_stranger_is_asked_to_log_in():
    assert Client().get(DASHBOARD).status_code == 302


def test_what_strangers_wrote_stays_text(admin_client, no_subscriptions):
    subscribe("order.*", queue="billing")(print)
    Worker.objects.create(kind="relay", host=SCRIPT, pid=1, version=SCRIPT, outage=SCRIPT[:20])
    Outage.objects.create(worker_id=Worker.objects.get().pk, host=SCRIPT, kind="x",
                          part=SCRIPT, began_at=timezone.now())  # fmt: skip
    Queue.objects.create(name=conf.queue("billing"), trouble=SCRIPT)

    for path in (DASHBOARD, f"{DASHBOARD}worker/", f"{DASHBOARD}outage/"):
        assert SCRIPT not in page(admin_client, path)


def test_the_list_of_queues_counts_consumers_as_the_dashboard_does(admin_client, no_subscriptions):
    subscribe("order.*", queue="billing")(print)
    name = conf.queue("billing")
    Queue.objects.create(name=name, messages=0, dlq_messages=1234, measured_at=timezone.now())
    Worker.objects.create(kind="consumer", host="a", pid=1, queues=[name])

    found = page(admin_client, f"{DASHBOARD}queue/")

    assert 'class="field-consumed_by">1</td>' in found
    assert 'data-label="In the DLQ" class="field-in_dlq">1,234</td>' in found


def test_what_is_ignored_for_now_needs_nobody_and_is_counted_apart(admin_client, no_subscriptions):
    until = timezone.now() + timedelta(days=1)
    DeadLetter.objects.create(kind="failed", body=b"", queue="q", ignored_until=until)

    found = page(admin_client)

    assert "There are no problems." in found
    assert "1 ignored for now" in found


def test_what_is_of_an_ignored_group_needs_nobody_until_its_time(admin_client, no_subscriptions):
    group = FailureGroup.objects.create(fingerprint="f", kind="failed")
    letter = {"kind": "failed", "body": b"", "queue": "q", "fingerprint": "f"}
    tomorrow = timezone.now() + timedelta(days=1)
    DeadLetter.objects.create(message_id="1", **letter)
    DeadLetter.objects.create(message_id="2", ignored_until=tomorrow, **letter)

    group.ignore(tomorrow, by="ada", note="the provider is down")
    found = page(admin_client)

    assert "There are no problems." in found
    assert "2 ignored for now" in found
    assert not open_letters_by_queue()

    group.ignore(timezone.now(), by="ada", note="")
    found = page(admin_client)

    assert "There is 1 problem:" in found
    assert "1 ignored for now" in found
    assert open_letters_by_queue() == {"q": 1}


def test_a_plan_that_does_not_proceed_is_a_problem(admin_client, no_subscriptions):
    pace = {"in_flight": 1, "fail_percent": 20, "tries": 1, "state": "running"}
    plan = Plan.objects.create(**pace)
    link = f'<a href="{DASHBOARD}plan/{plan.pk}/change/">Plan {plan.pk} does not proceed'

    assert link in page(admin_client)

    Plan.objects.create(**pace)
    assert f'<a href="{DASHBOARD}plan/">2 plans do not proceed' in page(admin_client)

    Worker.objects.create(kind="relay", host="a", pid=1)
    assert "There are no problems." in page(admin_client)


def test_many_queues_without_a_consumer_are_one_thing_to_do(admin_client, no_subscriptions):
    for name in ("billing", "shipping"):
        subscribe("order.*", queue=name, name=name)(print)

    found = page(admin_client)

    assert "There is 1 problem:" in found
    assert f'<a href="{DASHBOARD}queue/">2 queues have no consumer' in found


def test_a_silent_worker_and_an_outage_without_an_end_are_told_apart(admin_client):
    now = timezone.now()
    live = Worker.objects.create(kind="both", host="a", pid=1)
    gone = Worker.objects.create(
        kind="relay", host="b", pid=2, seen_at=now - timedelta(minutes=9), expected_at=now
    )
    for each in (live, gone):
        Outage.objects.create(worker_id=each.pk, kind="database", part="relay", began_at=now)

    found = page(admin_client)

    assert "no heartbeat for 9m" in found
    assert "ongoing" in found
    assert "its end was not recorded" in found


def test_workers_and_outages_have_lists_and_pages_that_change_nothing(admin_client):
    worker = Worker.objects.create(
        kind="both", host="a-host", pid=17, outage="blocked", outage_since=timezone.now()
    )
    Worker.objects.create(kind="relay", host="b", pid=1, is_stopping=True)
    Worker.objects.create(kind="relay", host="c", pid=2, expected_at=timezone.now())
    outage = Outage.objects.create(worker_id=worker.pk, kind="database", began_at=timezone.now())

    listed = page(admin_client, f"{DASHBOARD}worker/")

    for words in ("17 on a-host", "waits for a server", "finishes its work", "no heartbeat"):
        assert words in listed
    for path in (f"worker/{worker.pk}/change/", "outage/", f"outage/{outage.pk}/change/"):
        assert page(admin_client, DASHBOARD + path)
        assert admin_client.post(DASHBOARD + path, {"kind": "x"}).status_code in (200, 403)
    assert Worker.objects.get(pk=worker.pk).kind == "both"


def test_the_dashboard_takes_the_same_few_queries_however_much_there_is(
    admin_client, no_subscriptions
):
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(admin_client)
        return len(captured)

    page(admin_client)
    before = queries()
    for number in range(30):
        OutboxEvent.objects.create(state="unroutable", type="a.b", body=b"{}")
        Worker.objects.create(kind="relay", host="a", pid=number)

    assert queries() == before
    assert before < 30


@table(
    ("counts", "path"),
    [
        ([], ""),
        ([0, 0], ""),
        ([1], f"M0.0,{HEIGHT}V0.0H204.0V{HEIGHT}Z"),
        ([0, 2, 1], f"M80.0,{HEIGHT}V0.0H148.0V{HEIGHT}ZM160.0,{HEIGHT}V24.0H228.0V{HEIGHT}Z"),
        ([1000, 1], f"M0.0,{HEIGHT}V0.0H102.0V{HEIGHT}ZM120.0,{HEIGHT}V46.5H222.0V{HEIGHT}Z"),
    ],
)
def test_a_plot_has_a_bar_for_each_count_and_shows_the_smallest(counts, path):
    assert path_of(counts) == path
