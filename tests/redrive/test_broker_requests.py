"""Broker requests and the page of a queue: asked for by POST, done by a worker, given up with it."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from django_eventbus import subscribe, transports
from django_eventbus.conf import conf
from django_eventbus.models import AuditEntry, BrokerRequest, DeadLetter, Queue, Worker
from django_eventbus.models.monitoring import SILENCE
from django_eventbus.redrive import plans
from django_eventbus.redrive.broker_requests import BrokerRequestRunner, submit

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]

SCRIPT = "<script>alert(1)</script>"
ALL = ("view_queue", "view_deadletter", "redrive_deadletter")


@pytest.fixture
def worker() -> Worker:
    queues = ["q", conf.queue("billing")]
    return Worker.objects.create(
        kind="consumer", service=conf.service, host="a", pid=1, queues=queues
    )


@pytest.fixture
def queue(no_subscriptions) -> Queue:
    subscribe("order.*", queue="billing", name="charge")(print)
    name = conf.queue("billing")
    return Queue.objects.create(
        name=name,
        messages=5,
        tiers={"5m": 1, "30s": 2, "1h": None},
        dlq=f"{name}.dlq",
        dlq_messages=3,
        measured_at=timezone.now(),
    )


def user_with(*rights: str) -> Client:
    user = User.objects.create_user(f"user of {len(rights)}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client = Client()
    client.force_login(user)
    return client


def url(queue: Queue | str, verb: str = "change") -> str:
    name = quote(getattr(queue, "name", queue))
    return f"/admin/eventbus/queue/{name}/{verb}/"


def page(client: Client, queue: Queue) -> str:
    response = client.get(url(queue))
    assert response.status_code == 200
    return response.content.decode()


def test_of_two_workers_one_claims_a_broker_request(worker):
    request = submit("peek", "q", limit=1, by="ada")
    other = Worker.objects.create(kind="both", service=conf.service, host="b", pid=2, queues=["q"])

    taken = [BrokerRequest.objects.claim(each) for each in (worker, other)]

    assert taken == [request, None]
    assert BrokerRequest.objects.get().worker_id == worker.pk


def test_a_worker_of_another_service_or_queue_does_not_take_it():
    submit("peek", "q", limit=1, by="ada")

    assert BrokerRequest.objects.claim(Worker(service="another", queues=["q"])) is None
    assert BrokerRequest.objects.claim(Worker(service=conf.service, queues=["r"])) is None


def test_a_broker_request_whose_worker_died_is_abandoned_and_not_run_again(worker):
    submit("redrive", "q", limit=1, by="ada")
    request = BrokerRequest.objects.claim(worker)
    now = timezone.now()

    assert BrokerRequest.objects.abandon(now) == 0
    later = now + SILENCE + timedelta(seconds=1)
    Worker.objects.update(expected_at=later + SILENCE)
    assert BrokerRequest.objects.abandon(later) == 0
    Worker.objects.all().delete()
    assert BrokerRequest.objects.abandon(later) == 1

    request.done({"moved": 1})
    found = BrokerRequest.objects.get()
    assert (found.state, found.result, found.error) == ("abandoned", {}, "")
    assert "Check the DLQ before you submit it again." in found.error_text


def test_a_broker_request_that_cannot_be_done_says_why(worker, queue):
    submit("peek", queue.name, limit=5, by="ada")
    transport = transports.connect("database://")

    BrokerRequestRunner(transport, worker, threading.Event()).run_waiting()

    found = BrokerRequest.objects.get()
    assert found.state == "failed"
    assert found.error == "There is no DLQ here: dead letters are in the database, see the admin."


def test_the_audit_tells_that_a_re_drive_from_the_dlq_could_not_be_done(worker, queue):
    submit("redrive", queue.name, limit=5, by="ada", reason="mended")

    BrokerRequestRunner(transports.connect("database://"), worker, threading.Event()).run_waiting()

    entry = AuditEntry.objects.latest("pk")
    assert (entry.verb, entry.by, entry.why, entry.count) == ("redrove DLQ", "ada", "mended", 0)
    assert entry.outcome["failed"].startswith("There is no DLQ here")


def test_no_broker_request_takes_more_than_its_kind_allows():
    assert submit("peek", "q", limit=10_000, by="ada").limit == 50
    assert submit("redrive", "q", limit=10_000, by="ada").limit == 1000


def test_the_page_shows_the_level_the_tiers_the_subscriptions_and_the_offers(
    admin_client, queue, worker
):
    found = page(admin_client, queue)

    places = [found.index(words) for words in ("tier of 30s", "tier of 5m", "tier of 1h")]
    assert places == sorted(places)
    for words in ("charge", "order.*", f"In {queue.dlq}", "Read the DLQ"):
        assert words in found
    assert "disabled" not in found


def test_a_person_asks_and_it_is_audited(admin_client, queue, worker):
    admin_client.post(url(queue, "peek"), {"limit": 7})
    admin_client.post(url(queue, "redrive"), {"limit": 5, "reason": "The bug is mended."})

    peek, redrive = BrokerRequest.objects.order_by("id")
    assert (peek.kind, peek.limit, peek.queue, peek.submitted_by) == (
        "peek",
        7,
        queue.name,
        "admin",
    )
    assert (redrive.kind, redrive.reason) == ("redrive", "The bug is mended.")
    audited = AuditEntry.objects.order_by("id").values_list("verb", "by", "why", "filter", "count")
    assert list(audited) == [
        ("peek DLQ", "admin", "", f"queue={queue.name}", 7),
        ("redrive DLQ", "admin", "The bug is mended.", f"queue={queue.name}", 5),
    ]


def test_looking_at_a_page_asks_for_nothing(admin_client, queue, worker):
    assert admin_client.get(url(queue, "peek")).status_code == 302
    assert admin_client.get(url(queue, "redrive")).status_code == 200

    assert not BrokerRequest.objects.exists()


def test_a_re_drive_from_the_dlq_is_asked_for_on_a_page_of_its_own(admin_client, queue, worker):
    offered = page(admin_client, queue)
    asked = admin_client.get(url(queue, "redrive")).content.decode()

    assert f'<form method="get" action="{url(queue, "redrive")}"' in offered
    assert 'name="reason"' not in offered
    for words in (
        queue.name,
        queue.dlq,
        'name="limit"',
        'name="reason"',
        "Re-drive from the DLQ",
        "Re-drive them",
    ):
        assert words in asked


def test_how_many_to_re_drive_is_carried_over_to_the_page_that_asks(admin_client, queue, worker):
    offered = page(admin_client, queue)
    asked = admin_client.get(url(queue, "redrive"), {"limit": "7"})

    form = offered[offered.index(f'action="{url(queue, "redrive")}"') :].partition("</form>")[0]
    assert 'name="limit" value="100"' in form
    assert 'for="redrive-limit">Messages to re-drive:' in form
    assert 'for="peek-limit">Messages to read:' in offered
    assert 'name="limit" value="7"' in asked.text
    assert "errornote" not in asked.text
    assert 'name="limit" value="100"' in admin_client.get(url(queue, "redrive")).text


AWAITED = "data-eventbus-awaited"


def test_the_page_is_followed_until_the_level_is_younger_than_the_broker_request(
    admin_client, queue, worker
):
    now = timezone.now()
    request = submit("redrive", queue.name, limit=1, by="ada")
    Queue.objects.update(measured_at=now - timedelta(seconds=5))

    assert AWAITED in page(admin_client, queue)
    BrokerRequest.objects.claim(worker).done({"moved": 1, "left": {}})
    assert AWAITED in page(admin_client, queue)
    Queue.objects.update(measured_at=now + timedelta(seconds=5))
    assert AWAITED not in page(admin_client, queue)

    long_ago = now - timedelta(minutes=5)
    BrokerRequest.objects.filter(pk=request.pk).update(ended_at=long_ago)
    Queue.objects.update(measured_at=long_ago - timedelta(seconds=1))
    assert AWAITED not in page(admin_client, queue)


def test_the_page_of_a_re_drive_says_why_it_is_closed(queue, worker):
    client = user_with("view_queue", "view_deadletter")

    asked = client.get(url(queue, "redrive")).content.decode()

    assert "eventbus.redrive_deadletter" in asked
    assert "disabled" in asked


def test_a_re_drive_names_the_first_and_outdates_the_look_before_it(admin_client, queue, worker):
    then = timezone.now() - timedelta(minutes=5)
    common = {"state": "done", "queue": queue.name, "limit": 1, "submitted_by": "ada"}
    BrokerRequest.objects.create(kind="peek", claimed_at=then, ended_at=then, **common)
    before = page(admin_client, queue)
    done = {"claimed_at": timezone.now(), "ended_at": timezone.now()}
    result = {"moved": 2, "first": ["id-1", "id-2"], "left": {}}
    BrokerRequest.objects.create(kind="redrive", result=result, **done, **common)

    after = page(admin_client, queue)

    words = "This is older than the latest re-drive"
    assert (words in before, words in after) == (False, True)
    assert "The first of them: id-1, id-2" in after


def test_the_page_counts_the_dead_letters_of_the_queue(admin_client, queue, worker):
    for number, name in enumerate((queue.name, queue.name, "another")):
        DeadLetter.objects.create(kind="failed", message_id=str(number), body=b"", queue=name)

    assert "Dead letters of this queue</a>: 2" in page(admin_client, queue)


def test_a_form_that_is_wrong_is_shown_again(admin_client, queue, worker, monkeypatch):
    monkeypatch.setattr(plans, "REASON_ABOVE", 10)

    wrong = admin_client.post(url(queue, "peek"), {"limit": 0})
    unreasoned = admin_client.post(url(queue, "redrive"), {"limit": 11})

    assert "greater than or equal to 1" in wrong.content.decode()
    assert "A reason is required for more than 10." in unreasoned.content.decode()
    assert not BrokerRequest.objects.exists()


@pytest.mark.parametrize(
    ("verb", "rights", "change", "words"),
    [
        ("peek", ("view_queue",), {}, "eventbus.view_deadletter"),
        ("redrive", ("view_queue", "view_deadletter"), {}, "eventbus.redrive_deadletter"),
        ("redrive", ALL, {"is_collected": True}, "store the messages of the DLQ"),
    ],
)
def test_a_closed_button_says_why_and_a_hand_made_post_gets_403(
    queue, worker, verb, rights, change, words
):
    Queue.objects.update(**change)
    client = user_with(*rights)

    found = page(client, queue)

    assert words in found
    assert client.post(url(queue, verb), {"limit": 1}).status_code == 403
    assert not BrokerRequest.objects.exists()


def test_nothing_can_be_asked_for_where_no_worker_runs(admin_client, queue):
    assert "No consumer of this queue is running." in page(admin_client, queue)
    assert admin_client.post(url(queue, "peek"), {"limit": 1}).status_code == 403


def test_queues_that_are_not_ours_are_not_offered(admin_client, queue, worker):
    other = Queue.objects.create(name="of.others", dlq="of.others.dlq", measured_at=timezone.now())

    assert "of.others" not in admin_client.get("/admin/eventbus/queue/").content.decode()
    assert admin_client.get(url(other)).status_code == 404
    assert admin_client.post(url(other, "peek"), {"limit": 1}).status_code == 404


def test_whoever_may_not_see_queues_sees_none(queue, worker):
    client = user_with("view_deadletter", "redrive_deadletter")

    assert client.get(url(queue)).status_code == 403
    assert client.post(url(queue, "peek"), {"limit": 1}).status_code == 403


def test_what_lies_in_a_dlq_stays_text(admin_client, queue, worker):
    facts = dict.fromkeys(("id", "type", "reason", "error", "queue"), SCRIPT)
    numbers = {"attempts": 1, "round": 0, "age_seconds": 200, "bytes": 2}
    BrokerRequest.objects.create(
        kind="peek", state="done", queue=queue.name, limit=1, submitted_by=SCRIPT,
        result={"messages": [{**facts, **numbers}]},
    )  # fmt: skip
    BrokerRequest.objects.create(
        kind="redrive", state="done", queue=queue.name, limit=1, submitted_by="ada", reason=SCRIPT,
        result={"moved": 2, "left": {SCRIPT: {"reason": "other_queue", "detail": SCRIPT}}},
    )  # fmt: skip

    found = page(admin_client, queue)

    assert SCRIPT not in found
    assert "2 messages were re-driven." in found
    assert "3m" in found


# A DLQ that several queues share.


@pytest.fixture
def sharing(queue, settings) -> Queue:
    """A second queue, whose dead messages lie in the DLQ of the first."""
    names = {"dead_letter_queue": "{namespace}.dlq.{service}"}
    settings.EVENTBUS = {**settings.EVENTBUS, "NAMES": names, "PERMISSION": all_but_secret}
    subscribe("order.*", queue="secret", name="pay")(print)
    Queue.objects.update(dlq="shared.dlq")
    return Queue.objects.create(name=conf.queue("secret"), dlq="shared.dlq")


def all_but_secret(user, verb, queue) -> bool:
    return "secret" not in queue


@pytest.mark.parametrize("verb", ["peek", "redrive"])
def test_a_shared_dlq_takes_the_right_on_every_queue_that_it_is_of(sharing, queue, worker, verb):
    client = user_with(*ALL)

    found = page(client, queue)

    assert f"You may not do this on the queue {sharing.name}." in found
    assert client.post(url(queue, verb), {"limit": 1}).status_code == 403
    assert not BrokerRequest.objects.exists()


@pytest.mark.parametrize("known", ["measured", "subscribed"])
def test_a_dlq_is_shared_as_measured_and_as_named(sharing, queue, worker, settings, known):
    if known == "measured":
        settings.EVENTBUS = {**settings.EVENTBUS, "NAMES": {}}
        Queue.objects.filter(name=sharing.name).update(name="secret.of.others")
    else:
        sharing.delete()

    assert user_with(*ALL).post(url(queue, "peek"), {"limit": 1}).status_code == 403


def test_what_was_seen_in_a_shared_dlq_is_shown_to_who_may_see_all_its_queues(
    sharing, queue, worker, settings
):
    facts = {"id": "id-of-a-secret", "age_seconds": 1, "bytes": 2}
    BrokerRequest.objects.create(
        kind="peek", state="done", queue=queue.name, limit=1, submitted_by="ada",
        result={"messages": [facts]},
    )  # fmt: skip
    client = user_with(*ALL)

    unseen = page(client, queue)
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": None}

    assert "id-of-a-secret" not in unseen
    assert "id-of-a-secret" in page(client, queue)


def test_the_audit_names_every_queue_that_shares_the_dlq(
    admin_client, sharing, queue, worker, settings
):
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": None}

    admin_client.post(url(queue, "redrive"), {"limit": 5, "reason": "mended"})
    BrokerRequestRunner(transports.connect("database://"), worker, threading.Event()).run_waiting()

    both = f"queue={queue.name}&queue={sharing.name}"
    audited = AuditEntry.objects.order_by("pk").values_list("verb", "filter")
    assert list(audited) == [("redrive DLQ", both), ("redrove DLQ", both)]
