"""Every page, form and message in the language of its reader, whoever wrote what it shows."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.utils import timezone

from django_eventbus import Event
from django_eventbus.conf import conf
from django_eventbus.dead_letters.broker_deaths import REASONS
from django_eventbus.models import (
    AuditEntry,
    BrokerRequest,
    DeadLetter,
    FailureGroup,
    InboxRecord,
    Outage,
    OutboxEvent,
    Plan,
    Queue,
    Worker,
)
from tests.support.readers import BASE
from tests.support.readers import reader as reader
from tests.support.story import tell

# A walk over all pages takes long on a busy machine.
pytestmark = [pytest.mark.django_db, pytest.mark.timeout(300)]


def lists() -> list[str]:
    models = ("deadletter", "outboxevent", "inboxrecord", "queue", "worker", "outage", "plan")
    return ["", *(f"{model}/" for model in (*models, "auditentry"))]


def pages() -> list[str]:
    """Return a page of everything that there is, in each of its states."""
    states = (
        (OutboxEvent, "state"),
        (InboxRecord, "state"),
        (Queue, "dlq"),
        (Worker, "kind"),
        (Outage, "kind"),
        (Plan, "state"),
        (AuditEntry, "verb"),
    )
    rows = (
        (model._meta.model_name, key)
        for model, state in states
        for key in dict(model.objects.values_list(state, "pk")).values()
    )
    letters = [DeadLetter.objects.filter(state=state).first() for state in DeadLetter.State.values]
    groups = FailureGroup.objects.values_list("pk", flat=True)
    return [
        *(f"{name}/{quote(key)}/change/" for name, key in rows),
        *(f"deadletter/{letter.pk}/change/" for letter in letters if letter),
        *(f"deadletter/groups/{key}/" for key in groups),
    ]


def verbs() -> list[str]:
    """Return the pages on which something is done, or cannot be."""
    letter = DeadLetter.objects.filter(error_type="CardExpired", state="open").first()
    names = ("dry-run", "discard", "ignore", "restore")
    return [
        "deadletter/list/",
        "deadletter/list/?attempts_min=many",
        "deadletter/list/?parked_after=soon",
        "deadletter/list/?type=nothing.like.it",
        f"deadletter/{letter.pk}/edit/",
        *(f"deadletter/{name}/?id={letter.pk}" for name in names),
    ]


def machines() -> None:
    """Let every kind of outage happen, to every part."""
    now = timezone.now()
    for number, kind in enumerate(Outage.Kind.values):
        part = Outage.Part.values[number % len(Outage.Part.values)]
        worker = Worker.objects.create(
            kind="both", host="app-1", pid=500 + number, outage=kind, service=conf.service,
            outage_since=now - timedelta(hours=1),
        )  # fmt: skip
        Outage.objects.create(
            worker_id=worker.pk, host="app-1", part=part, kind=kind, began_at=now,
        )  # fmt: skip


def troubles() -> None:
    """Let everything need doing: a row in every state, and figures that are bad."""
    machines()
    now = timezone.now()
    row = {"type": "order.placed", "body": b"{}", "created_at": now - timedelta(hours=1)}
    for number, state in enumerate(("ready", "failed", "cancelled")):
        OutboxEvent.objects.create(state=state, message_id=f"outbox-{number}", **row)
    Queue.objects.filter(name=conf.queue("billing")).update(dlq_messages=3, is_collected=False)
    Queue.objects.filter(name=conf.queue("shipping")).update(messages=None, dlq="")
    Worker.objects.create(kind="relay", host="app-1", pid=1, is_stopping=True)
    Worker.objects.create(kind="relay", host="app-1", pid=2, seen_at=now - timedelta(minutes=9))
    ids = list(DeadLetter.objects.order_by("pk").values_list("pk", flat=True))
    for key, state in zip(ids, DeadLetter.State.values, strict=False):
        letter = {"state": state, "round": 1, "closed_at": now, "closed_by": "grace"}
        unanswered = "timeout" if state == "unknown" else ""
        DeadLetter.objects.filter(pk=key).update(redriven_at=now, unanswered=unanswered, **letter)
    for state in Plan.State.values:
        note = {"note": "paused", "note_detail": "ada"}
        Plan.objects.create(state=state, in_flight=1, fail_percent=20, **note)
    for verb in AuditEntry.Verb.values:
        AuditEntry.objects.create(verb=verb, by="ada", outcome={"skipped": 1})


def answers() -> list[tuple[str, dict[str, str]]]:
    """Return forms that are filled in wrongly."""
    letters = DeadLetter.objects.filter(state="open").exclude(subscription="")
    queue, letter = quote(conf.queue("billing")), letters.last()
    selection = {"selection": f"id={letter.pk}"}
    unroutable = OutboxEvent.objects.get(state="unroutable")
    return [
        ("deadletter/discard/", selection),
        ("deadletter/ignore/", {**selection, "until": "2001-01-31T12:00"}),
        ("deadletter/ignore/", {**selection, "until": "9999-12-31T12:00"}),
        ("deadletter/dry-run/", {**selection, "canary": "-1", "rate": "0", "tries": "1000"}),
        ("deadletter/dry-run/", {**selection, "patch": "NaN"}),
        ("deadletter/dry-run/", {**selection, "patch": '{"total": 1e400}'}),
        ("deadletter/dry-run/", {**selection, "patch": "1" * 5000}),
        (f"deadletter/{letter.pk}/edit/", {"payload": "NaN", "headers": "[]"}),
        (f"deadletter/{letter.pk}/edit/", {"payload": '{"total": 1, "total": 2}'}),
        (f"deadletter/groups/{letter.fingerprint}/", {"verb": "ignore"}),
        (f"queue/{queue}/redrive/", {"limit": "999"}),
        (f"outboxevent/{unroutable.pk}/publish_again/", {}),
    ]


def test_every_page_speaks_the_language_of_its_reader(bus, reader):
    tell(bus, orders=12)
    troubles()
    broker_requests(conf.queue("billing"))

    assert reader.left_in_english(*lists(), *pages(), *verbs()) == {}


def test_every_refusal_speaks_the_language_of_its_reader(bus, reader):
    tell(bus, orders=12)
    troubles()

    found: dict[str, str] = {}
    for path, data in answers():
        found |= reader.left_in_english(path, data=data)

    assert found == {}


def test_whoever_may_only_look_is_told_why_in_their_language(bus, reader):
    tell(bus, orders=12)
    troubles()
    user = User.objects.create_user("otto", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    reader.client.force_login(user)
    words = {"de": "Dafür ist die Berechtigung", "pt_BR": "É necessária a permissão"}

    found = reader.left_in_english(
        "", *pages(), *(path for path in verbs() if "/edit/" not in path)
    )

    assert found == {}
    assert words[reader.language] in reader.sees("deadletter/list/")


def test_every_page_without_anything_speaks_the_language_of_its_reader(bus, reader):
    assert reader.left_in_english(*lists(), "deadletter/list/") == {}


@pytest.mark.parametrize(
    ("accepted", "title"),
    [("de", "Unzustellbare Nachrichten nach Fehlschlag"), ("pt-BR", "Mensagens mortas por falha")],
)
def test_a_page_is_read_in_the_language_that_the_browser_asks_for(reader, accepted, title):
    assert title in reader.sees("deadletter/", accepted=accepted)


def test_an_outage_is_named_in_the_language_of_its_reader(bus, reader):
    tell(bus, orders=12)
    machines()
    expected = {"de": ("keine rechtzeitige Antwort", "Befehl auf app-1")}.get(
        reader.language, ("sem resposta no prazo", "comando em app-1")
    )

    for words in expected:
        assert words in reader.sees("")
    assert expected[0] in reader.sees("outage/")
    assert expected[0] in reader.sees("worker/")


def broker_requests(queue: str) -> None:
    """Let there be one of every outcome."""
    found = {"id": "1", "type": "order.placed", "reason": "expired", "error": REASONS["expired"]}
    found |= {"attempts": 1, "age_seconds": 60, "bytes": 2}
    row = {"queue": queue, "limit": 5, "submitted_by": "ada", "service": conf.service}
    BrokerRequest.objects.create(kind="peek", state="done", result={"messages": [found]}, **row)
    left = {
        "2": {"reason": "returned", "detail": ""},
        "3": {"reason": "other_queue", "detail": "another.queue"},
    }
    BrokerRequest.objects.create(
        kind="redrive", state="done", result={"moved": 1, "left": left}, **row
    )
    BrokerRequest.objects.create(kind="redrive", state="running", claimed_at=timezone.now(), **row)
    BrokerRequest.objects.abandon(timezone.now() + timedelta(hours=1))


def test_what_came_of_a_broker_request_is_read_in_the_language_of_its_reader(bus, reader):
    tell(bus, orders=12)
    queue = conf.queue("billing")
    broker_requests(queue)

    page = reader.sees(f"queue/{quote(queue)}/change/")

    german = (
        "abgelaufen",
        "sie kam währenddessen zurück",
        "sie gehört zu another.queue",
        "Der Worker",
    )
    portuguese = ("expirada", "ela voltou durante", "ela pertence a another.queue", "O worker")
    for words in {"de": german, "pt_BR": portuguese}[reader.language]:
        assert words in page
    for words in ("it came back", "it belongs", "The worker stopped", "abandoned"):
        assert words not in page


def test_why_a_plan_paused_is_read_in_the_language_of_its_reader(bus, reader):
    tell(bus, orders=12)
    paused = Plan.objects.filter(note="failing").first()
    words = {"de": "schlugen erneut fehl: ", "pt_BR": "falharam de novo: "}

    for path in ("plan/", f"plan/{paused.pk}/change/", "auditentry/"):
        assert words[reader.language] in reader.sees(path), path


class ParcelWeighed(Event, type="parcel.weighed", version=1):
    parcel_id: int
    grams: int


def weighed(bus) -> DeadLetter:
    def fail(event):
        raise ValueError("too heavy")

    bus.subscribe(ParcelWeighed, name="weigh", retry=[])(fail)
    bus.put(type="parcel.weighed", body=b'{"parcel_id": 1, "grams": 5000}')
    bus.drain()
    return bus.letter


def test_what_is_wrong_with_an_edit_is_told_in_the_language_of_its_reader(bus, reader):
    letter = weighed(bus)
    path = f"deadletter/{letter.pk}/edit/"
    german = ("ParcelWeighed: grams fehlt", "Header 'x-death' ist reserviert")
    portuguese = ("ParcelWeighed: falta grams", "o cabeçalho 'x-death' é reservado")

    answers = {"payload": '{"parcel_id": 1}', "headers": '{"x-death": 1}'}

    page = reader.sees(path, {**answers, "reason": "typo", "round": "0"})

    for words in {"de": german, "pt_BR": portuguese}[reader.language]:
        assert words in page


def test_a_dry_run_says_in_the_language_of_its_reader_what_no_handler_can_be_given(bus, reader):
    weighed(bus)
    bus.put(type="parcel.weighed", body=b"<parcel/>")
    bus.drain()
    form = {"selection": "state=all", "patch": '{"grams": null}', "try": "yes"}
    headers = {"accept-language": reader.accepted}

    path = f"{BASE}/deadletter/dry-run/"
    page = reader.client.post(path, form, headers=headers).content.decode()

    expected = {
        # An error that a parked message has is shown as it was recorded.
        "de": ("ParcelWeighed: grams fehlt", "the body is not JSON"),
        "pt_BR": ("ParcelWeighed: falta grams", "the body is not JSON"),
    }
    for words in expected[reader.language]:
        assert words in page
