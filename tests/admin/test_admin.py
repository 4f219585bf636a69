"""The admin: what it shows, who may do what, and that only a confirmed POST moves anything."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.html import escape

from django_eventbus import GiveUp, publish
from django_eventbus.admin import formatting, model_admin, outbox
from django_eventbus.admin.model_admin import ValuesFilter, ago
from django_eventbus.models import AuditEntry, DeadLetter, InboxRecord, OutboxEvent, Worker
from django_eventbus.redrive.letters import redrive
from tests.shop.models import Effect
from tests.support.tables import table

LIST = "/admin/eventbus/deadletter/"
OUTBOX = "/admin/eventbus/outboxevent/"
INBOX = "/admin/eventbus/inboxrecord/"
SCRIPT = "<script>alert(1)</script>"


class Handler:
    """Fails until it is mended."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error: Exception | None = error or ValueError("the card is broken")

    def __call__(self, event) -> None:
        if self.error:
            raise self.error
        Effect.objects.create(event_id=event.meta.id, subscription="charge")


def subscribed(bus, name: str = "charge", **options) -> Handler:
    handler = Handler(options.pop("error", None))
    bus.subscribe("order.*", name=name, retry=["1s"], tries=2, **options)(handler)
    return handler


@pytest.fixture
def charge(bus) -> Handler:
    return subscribed(bus)


@pytest.fixture
def letter(bus, charge) -> DeadLetter:
    """One message that failed twice and was parked."""
    publish("order.placed", {"order_id": 42, "note": "please"}, key="42", headers={"tenant": "a"})
    bus.drain()
    return bus.letter


@pytest.fixture
def letters(bus, charge) -> list[DeadLetter]:
    for number in range(3):
        publish("order.placed", {"order_id": number})
    bus.drain()
    return list(DeadLetter.objects.order_by("pk"))


@pytest.fixture
def unroutable(bus) -> OutboxEvent:
    publish("nobody.asked", {"order_id": 42})
    bus.relay()
    return OutboxEvent.objects.get(state="unroutable")


def user_with(*rights: str) -> Client:
    user = User.objects.create_user(f"user of {len(rights)}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    client = Client()
    client.force_login(user)
    return client


def page_of(row) -> str:
    return reverse(f"admin:eventbus_{row._meta.model_name}_change", args=[row.pk])


def text(response) -> str:
    """The page's text, as a reader sees it: tags out, blanks folded."""
    assert response.status_code == 200, response
    return " ".join(re.sub(r"<[^>]+>", " ", response.content.decode()).split())


def choose(client, action, rows, path=LIST, **extra):
    """Select rows in the list and choose an action."""
    data = {"action": action, "_selected_action": [each.pk for each in rows], **extra}
    return client.post(path, data)


def say_yes(client, asked, **answers):
    """Say yes on a confirmation page."""
    selection = {"selection": str(asked.context["selection"])}
    return client.post(asked.context["target"], {**selection, **answers}, follow=True)


def states() -> list[str]:
    return list(DeadLetter.objects.order_by("pk").values_list("state", flat=True))


# Lists and pages.


def test_each_list_shows_its_rows(admin_client, letter):
    for path in (OUTBOX, INBOX):
        response = admin_client.get(path)

        assert "order.placed" in text(response)
        assert response.context["cl"].result_count == 1


def test_nothing_can_be_added_changed_or_deleted(admin_client, letter):
    for model, path in ((DeadLetter, LIST), (OutboxEvent, OUTBOX), (InboxRecord, INBOX)):
        row = model.objects.get()

        assert admin_client.get(f"{path}add/").status_code == 403
        assert admin_client.post(page_of(row), {"state": "healed"}).status_code == 403
        assert admin_client.post(f"{path}{row.pk}/delete/", {"post": "yes"}).status_code == 403
        assert "delete_selected" not in admin_client.get(path).content.decode()


def test_a_user_without_view_permission_sees_nothing(letter):
    assert user_with().get(LIST).status_code == 403
    assert user_with("view_deadletter").get(LIST).status_code == 200


def test_a_filter_lists_no_more_values_than_a_screen_holds(admin_client, bus):
    for number in range(40):
        publish(f"kind{number}.seen", {})

    response = admin_client.get(OUTBOX)

    by_type = next(each for each in response.context["cl"].filter_specs if each.title == "type")
    assert len(by_type.lookup_choices) == 30


def test_a_message_is_found_by_the_start_of_its_id(admin_client, letter):
    for path in (OUTBOX, INBOX):
        response = admin_client.get(path, {"q": letter.message_id[:13]})

        assert response.context["cl"].result_count == 1


def test_lists_do_not_read_bodies(admin_client, letter, django_assert_max_num_queries):
    with django_assert_max_num_queries(28) as queries:
        admin_client.get(OUTBOX)

    assert not [
        each["sql"] for each in queries if re.search(r'"(body|payload|traceback)"', each["sql"])
    ]


def test_the_dead_letters_page_tells_what_failed(admin_client, letter):
    shown = text(admin_client.get(page_of(letter)))

    assert "ValueError" in shown
    assert "the card is broken" in shown
    assert "&quot;order_id&quot;: 42" in shown
    assert "tenant a" in shown
    assert letter.traceback.splitlines()[-1] in shown


def test_the_dead_letters_page_shows_each_failed_attempt(admin_client, bus, letter):
    redrive([letter.pk], by="ada", using="default")
    bus.drain()

    attempts = admin_client.get(page_of(letter)).context["attempts"]

    assert [(each.round, each.attempt) for each in attempts] == [(0, 1), (0, 2), (1, 1)]
    assert attempts[0].tier == "1s"


def test_the_dead_letters_page_links_to_inbox_and_outbox(admin_client, bus, letter):
    redrive([letter.pk], by="ada", using="default")

    page = admin_client.get(page_of(letter)).content.decode()

    assert f'href="{page_of(InboxRecord.objects.get())}"' in page
    for row in OutboxEvent.objects.all():
        assert f'href="{page_of(row)}"' in page


def test_links_lead_only_where_the_user_may_go(letter):
    client = user_with("view_deadletter", "view_inboxrecord")

    screens = client.get(page_of(letter)).context["other_rows"]

    assert [each["name"] for each in screens] == ["inbox records"]


def test_many_rows_of_one_message_are_linked_as_a_list(admin_client, bus, letter):
    for _ in range(12):
        redrive([letter.pk], by="ada", using="default")
        bus.drain()

    outbox = admin_client.get(page_of(letter)).context["other_rows"][0]

    assert len(outbox["links"]) == 10
    assert admin_client.get(outbox["more"]).context["cl"].result_count == 13


def test_the_inbox_page_shows_attempts_and_the_dead_letter(admin_client, letter):
    response = admin_client.get(page_of(InboxRecord.objects.get()))

    assert "the card is broken" in text(response)
    assert f'href="{page_of(letter)}"' in response.content.decode()


def test_the_inbox_page_names_the_tier_that_a_message_waits_in(admin_client, bus, charge):
    publish("order.placed", {})
    bus.relay()
    bus.consume()

    assert "Waits in tier: 1s" in text(admin_client.get(page_of(InboxRecord.objects.get())))


def test_the_outbox_page_shows_state_and_error(admin_client, unroutable):
    shown = text(admin_client.get(page_of(unroutable)))

    assert "State: unroutable" in shown
    assert unroutable.error in shown


def test_the_outbox_list_tells_when_a_scheduled_event_is_due(admin_client, bus):
    publish("order.placed", {}, delay="2h")

    assert "scheduled, due in 1 hour, 59 minutes" in text(admin_client.get(OUTBOX))


def test_a_row_that_is_not_there_is_not_found(admin_client):
    assert admin_client.get(f"{OUTBOX}12345/publish_again/").status_code == 404
    assert admin_client.get(f"{OUTBOX}abc/publish_again/").status_code == 404


def test_ages_are_told_in_words(admin_client, letter):
    assert "just now" in text(admin_client.get(LIST))

    DeadLetter.objects.update(parked_at=timezone.now() - timedelta(hours=3))

    assert "3 hours ago" in text(admin_client.get(LIST))


def test_ages_are_told_without_time_zones_too(settings):
    settings.USE_TZ = False

    assert "3\xa0hours\xa0ago" in ago(timezone.now() - timedelta(hours=3))
    assert ago(None) == "-"


@table(
    ("language", "words"),
    [("en", "2 days ago"), ("de", "vor 2 Tagen"), ("pt-br", "há 2 dias")],
)
def test_ages_have_the_endings_of_their_language(language, words):
    with translation.override(language):
        told = ago(timezone.now() - timedelta(days=2, hours=3))

    assert f">{words}<" in told.replace("\xa0", " ")


# Foreign content.


def test_script_in_payload_headers_and_error_stays_text(admin_client, bus):
    subscribed(bus, error=GiveUp(SCRIPT))
    bus.put(body=b'{"note": "%s"}' % SCRIPT.encode(), headers={SCRIPT: SCRIPT}, type="order.placed")
    bus.put(body=SCRIPT.encode(), type=f"order.{SCRIPT}")
    bus.drain()
    assert DeadLetter.objects.count() == 2

    pages = [page_of(each) for each in (*DeadLetter.objects.all(), InboxRecord.objects.get())]
    for response in (admin_client.get(path) for path in (LIST, INBOX, *pages)):
        assert SCRIPT not in response.content.decode()
    assert escape(SCRIPT) in admin_client.get(pages[0]).content.decode()


def test_a_sixteen_mebibyte_body_is_shown_cut(admin_client, bus):
    subscribed(bus)
    bus.put(body=b'{"note": "' + b"x" * (16 * 1024 * 1024) + b'"}')
    bus.drain()

    # The processor's seconds: those of the wall depend on what else the machine does.
    began = time.process_time()
    response = admin_client.get(page_of(bus.letter))

    assert time.process_time() - began < 2
    assert "Only the first 32.0" in text(response)
    assert len(response.content) < 200_000


def test_an_undecodable_body_is_shown_as_a_dump(admin_client, bus):
    subscribed(bus)
    bus.put(body=b"\xff\xfe<b>\x00 no text")
    bus.drain()

    shown = admin_client.get(page_of(bus.letter)).content.decode()

    assert "00000000  ff fe 3c 62 3e 00 20 6e 6f 20 74 65 78 74" in shown
    assert "..&lt;b&gt;. no text" in shown


@table(
    ("start", "size", "shown"),
    [
        (b'{"a":[1.10]}', 12, '{\n  "a": [\n    1.10\n  ]\n}'),
        (b"12345678901234567890.10", 23, "12345678901234567890.10"),
        (b"not JSON", 8, "not JSON"),
        (b"[" * 5000, 5000, "[" * 5000),
        ("a\u202eb\x00\n".encode(), 6, "a\\u202eb\\x00\n"),
        ("cut: é".encode()[:-1], 100, "cut: "),
        (b"", 0, ""),
    ],
)
def test_a_body_is_made_readable(start, size, shown):
    assert formatting.excerpt(start, size).text == shown


def test_a_body_that_grows_when_indented_is_cut():
    body = b"[" * 500 + b"0," * 10_000 + b"0" + b"]" * 500

    shown = formatting.excerpt(body, len(body)).text

    assert len(shown) <= formatting.TEXT_LIMIT + len("… (cut)")
    assert shown.endswith("… (cut)")


def test_many_and_long_headers_are_cut():
    headers = {f"h{number:03}": "x" * 5000 for number in range(150)}

    shown = formatting.render_headers({**headers, "a": ["list", {"of": 1}]})

    assert "51 more headers are not shown" in shown
    assert "[&quot;list&quot;, {&quot;of&quot;: 1}]" in shown
    assert len(shown) < 150_000


# Publish again.


def test_publish_again_sends_what_could_not_be_routed(admin_client, bus, unroutable):
    bus.subscribe("nobody.*")(lambda event: Effect.objects.create(event_id=event.meta.id))

    done = say_yes(admin_client, choose(admin_client, "publish_again", [unroutable], OUTBOX))
    bus.drain()

    assert "1 event is ready to be sent again." in text(done)
    assert Effect.objects.count() == 1
    assert "It was unroutable" in LogEntry.objects.get().change_message


def test_publish_again_moves_only_what_is_unsent(admin_client, bus, letter, unroutable):
    asked = choose(admin_client, "publish_again", OutboxEvent.objects.all(), OUTBOX)
    assert "1 stays as it is: published" in text(asked)
    say_yes(admin_client, asked)

    assert "0 events are ready to be sent again, 1 was not changed" in text(
        say_yes(admin_client, asked)
    )


def test_publish_again_takes_a_right_of_its_own(unroutable):
    form = {"selection": f"{unroutable.pk}_unroutable"}
    viewer = user_with("view_outboxevent", "change_outboxevent", "cancel_outboxevent")
    changer = user_with("view_outboxevent", "publish_again_outboxevent")

    assert viewer.post(f"{OUTBOX}publish_again/", form).status_code == 403
    assert "You need the permission eventbus.publish_again_outboxevent." in (
        viewer.get(page_of(unroutable)).content.decode()
    )
    assert changer.post(f"{OUTBOX}publish_again/", form).status_code == 302
    assert OutboxEvent.objects.get().state == "ready"


def test_publish_again_is_audited(admin_client, unroutable):
    say_yes(admin_client, choose(admin_client, "publish_again", [unroutable], OUTBOX))

    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.by, entry.count) == ("publish again", "admin", 1)
    assert entry.filter == f"outbox={unroutable.pk}"
    assert entry.outcome == {"changed": 1, "left": 0}


# Cancel.


@pytest.fixture
def scheduled(bus) -> OutboxEvent:
    publish("order.reminded", {}, delay=timedelta(hours=3))
    return OutboxEvent.objects.get()


def test_what_is_scheduled_can_be_taken_back_with_a_reason(admin_client, bus, scheduled):
    assert "scheduled, due in 2" in text(admin_client.get(OUTBOX))
    asked = choose(admin_client, "cancel", [scheduled], OUTBOX)
    assert "This field is required." in text(say_yes(admin_client, asked))

    done = say_yes(admin_client, asked, reason="It was a test.")

    assert "1 event was cancelled." in text(done)
    assert OutboxEvent.objects.get().state == "cancelled"
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.why, entry.count) == ("cancel", "It was a test.", 1)


def test_a_retry_and_what_is_due_already_are_not_taken_back(admin_client, scheduled):
    retry = OutboxEvent.objects.create(
        state="scheduled", queue="q", type="a.b", body=b"", message_id="1", due_at=timezone.now()
    )
    asked = choose(admin_client, "cancel", [scheduled, retry], OUTBOX)
    OutboxEvent.objects.filter(pk=scheduled.pk).update(state="ready")

    done = say_yes(admin_client, asked, reason="A mistake.")

    assert "0 events were cancelled, 2 could no longer be cancelled." in text(done)
    assert not AuditEntry.objects.exists()


def test_cancelling_takes_a_right_of_its_own(scheduled):
    form = {"selection": f"{scheduled.pk}_scheduled", "reason": "so"}
    viewer = user_with("view_outboxevent", "publish_again_outboxevent")
    canceller = user_with("view_outboxevent", "view_worker", "cancel_outboxevent")

    assert viewer.post(f"{OUTBOX}cancel/", form).status_code == 403
    assert canceller.post(f"{OUTBOX}cancel/", form).status_code == 302
    assert OutboxEvent.objects.get().state == "cancelled"


# Many rows.


def test_a_list_counts_no_further_than_it_can_be_paged(admin_client, bus, monkeypatch):
    monkeypatch.setattr(model_admin, "PAGING_LIMIT", 2)
    for _ in range(3):
        publish("nobody.asked", {})

    with CaptureQueriesContext(connection) as captured:
        shown = text(admin_client.get(OUTBOX))

    assert "Only the first 2 are listed. Filter or search for the others." in shown
    counts = [each["sql"] for each in captured if "COUNT(" in each["sql"]]
    assert counts
    assert all("LIMIT 3" in sql for sql in counts)


def test_filters_offer_the_values_of_the_latest_rows(admin_client, bus, monkeypatch):
    monkeypatch.setattr(ValuesFilter, "latest", 1)
    publish("an.old.one", {})
    publish("a.new.one", {})

    assert "type=an.old.one" not in admin_client.get(OUTBOX).content.decode()
    assert "type=a.new.one" in admin_client.get(OUTBOX).content.decode()
    assert "1 outbox event" in text(admin_client.get(f"{OUTBOX}?type=an.old.one"))


# Confirming.


def test_a_get_moves_nothing_and_leads_back_to_the_list(admin_client, unroutable):
    form = {"selection": f"{unroutable.pk}_unroutable"}

    response = admin_client.get(f"{OUTBOX}publish_again/", form)
    admin_client.get(f"{OUTBOX}{unroutable.pk}/publish_again/", form)
    choose(admin_client, "publish_again", [unroutable], OUTBOX)

    assert response.headers["Location"] == OUTBOX
    assert OutboxEvent.objects.get().state == "unroutable"


def test_a_post_without_a_csrf_token_is_refused(admin_user, unroutable):
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)

    response = client.post(f"{OUTBOX}publish_again/", {"selection": f"{unroutable.pk}_unroutable"})

    assert response.status_code == 403
    assert OutboxEvent.objects.get().state == "unroutable"


def test_more_than_one_request_can_take_is_said_and_cut(admin_client, bus, monkeypatch):
    for _ in range(3):
        publish("nobody.asked", {})
    bus.relay()
    monkeypatch.setattr(outbox, "ROWS_LIMIT", 2)

    asked = choose(admin_client, "publish_again", OutboxEvent.objects.all(), OUTBOX)
    done = say_yes(admin_client, asked)

    assert "There are 3, which is more than one request can change" in text(asked)
    assert "2 events are ready to be sent again." in text(done)


def test_a_selection_that_is_none_is_refused(admin_client, unroutable):
    for selection in ("1", "x_0", "1_0 2"):
        response = admin_client.post(f"{OUTBOX}publish_again/", {"selection": selection})

        assert response.status_code == 400
    assert admin_client.post(f"{OUTBOX}publish_again/").headers["Location"] == OUTBOX
    assert OutboxEvent.objects.get().state == "unroutable"


def test_the_outbox_says_which_right_its_closed_actions_need(admin_client, unroutable):
    none, one = user_with("view_outboxevent"), user_with("view_outboxevent", "cancel_outboxevent")
    publishing = "You need the permission eventbus.publish_again_outboxevent."
    cancelling = "You need the permission eventbus.cancel_outboxevent."

    found = [text(client.get(OUTBOX)) for client in (none, one, admin_client)]

    assert [publishing in each for each in found] == [True, True, False]
    assert [cancelling in each for each in found] == [True, False, False]


def test_a_history_is_offered_only_where_there_is_one(admin_client, unroutable):
    letter = DeadLetter.objects.create(
        kind="failed", message_id="m", body=b"{}", queue="q", fingerprint="f"
    )
    entry = AuditEntry.objects.create(verb="discard", by="ada")
    worker = Worker.objects.create(kind="relay", host="a", pid=1)
    page = f"{OUTBOX}{unroutable.pk}/change/"

    for path in (
        page,
        f"/admin/eventbus/deadletter/{letter.pk}/change/",
        f"/admin/eventbus/auditentry/{entry.pk}/change/",
        f"/admin/eventbus/worker/{worker.pk}/change/",
    ):
        shown = admin_client.get(path)
        assert shown.status_code == 200
        assert "historylink" not in shown.text, path

    say_yes(admin_client, choose(admin_client, "publish_again", [unroutable], OUTBOX))
    assert "historylink" in admin_client.get(page).text


def test_what_is_confirmed_is_in_the_history_of_the_row(admin_client, unroutable):
    say_yes(admin_client, choose(admin_client, "publish_again", [unroutable], OUTBOX))

    shown = text(admin_client.get(f"{OUTBOX}{unroutable.pk}/history/"))

    assert "admin Published again." in shown


# Pages under a strict policy.


def test_no_page_needs_inline_script_or_style_of_ours(admin_client, letter):
    asked = admin_client.get(f"{LIST}discard/?id={letter.pk}")
    for response in (asked, admin_client.get(page_of(letter)), admin_client.get(LIST)):
        page = response.content.decode()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", page)


LISTS = ("deadletter", "deadletter/list", "inboxrecord", "outboxevent", "plan", "auditentry")
LISTS += ("queue", "worker", "outage")
FILTERS = ("q", "type", "queue", "subscription", "state", "state__exact", "verb", "service", "kind")
FILTERS += ("back", "page", "p", "o", "settled_at__gte", "nonsense", "payload.a", "\0")


@pytest.mark.parametrize("name", LISTS)
def test_a_nul_in_the_query_of_a_list_is_refused_or_ignored(admin_client, letter, name):
    for field in FILTERS:
        response = admin_client.get(f"/admin/eventbus/{name}/", {field: "\0"}, follow=True)

        assert response.status_code == 200, field


@pytest.mark.parametrize(
    "path",
    [
        *(f"{name}/%00/{page}/" for name in LISTS for page in ("change", "history", "delete")),
        "deadletter/groups/%00",
        "deadletter/%00/body",
        "deadletter/%00/edit",
        "outboxevent/%00/publish_again",
        "plan/%00/progress",
        "queue/%00/peek",
        "queue/%00/redrive",
    ],
)
def test_what_has_a_nul_for_a_key_is_not_there(admin_client, letter, path):
    answers = [admin_client.get(f"/admin/eventbus/{path.strip('/')}/", follow=True)]
    answers.append(admin_client.post(f"/admin/eventbus/{path.strip('/')}/", follow=True))

    # Django goes from a row that is not there to its index.
    assert {each.status_code for each in answers} <= {200, 403, 404}
