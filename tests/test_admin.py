"""The admin: what it shows, who may do what, and that only a confirmed POST moves anything."""

from __future__ import annotations

import re
import threading
import time
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from django_eventbus import GiveUp, publish
from django_eventbus.admin import excerpts, selections
from django_eventbus.admin.read_only import ago
from django_eventbus.conf import conf
from django_eventbus.models import DeadLetter, InboxRecord, OutboxEvent
from django_eventbus.redrive import give_up_waiting, redrive
from tests.shop.models import Effect

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


def confirm(client, asked, **answers):
    """Say yes on a confirmation page."""
    selection = {"selection": str(asked.context["preview"].selection)}
    return client.post(asked.context["target"], {**selection, **answers}, follow=True)


def states() -> list[str]:
    return list(DeadLetter.objects.order_by("pk").values_list("state", flat=True))


# Lists and pages.


def test_each_list_shows_its_rows(admin_client, letter):
    for path in (LIST, OUTBOX, INBOX):
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


def test_dead_letters_are_filtered_and_searched(admin_client, letter):
    expected = {
        "state__exact=open": 1,
        "state__exact=healed": 0,
        "kind__exact=failed": 1,
        "type=order.placed": 1,
        "type=order.shipped": 0,
        "subscription=charge": 1,
        "subscription=": 0,
        "error_type=ValueError": 1,
        "q=card": 1,
        "q=cart": 0,
    }

    counts = {
        query: admin_client.get(f"{LIST}?{query}").context["cl"].result_count for query in expected
    }

    assert counts == expected


def test_a_filter_lists_no_more_values_than_a_screen_holds(admin_client, bus):
    for number in range(40):
        publish(f"kind{number}.seen", {})

    response = admin_client.get(OUTBOX)

    by_type = next(each for each in response.context["cl"].filter_specs if each.title == "type")
    assert len(by_type.lookup_choices) == 30


def test_a_message_is_found_by_the_start_of_its_id(admin_client, letter):
    for path in (LIST, OUTBOX, INBOX):
        response = admin_client.get(path, {"q": letter.message_id[:13]})

        assert response.context["cl"].result_count == 1


def test_lists_do_not_read_bodies(admin_client, letter, django_assert_max_num_queries):
    with django_assert_max_num_queries(30) as queries:
        admin_client.get(LIST)
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

    screens = client.get(page_of(letter)).context["elsewhere"]

    assert [each["name"] for each in screens] == ["inbox records"]


def test_many_rows_of_one_message_are_linked_as_a_list(admin_client, bus, letter):
    for _ in range(12):
        redrive([letter.pk], by="ada", using="default")
        bus.drain()

    outbox = admin_client.get(page_of(letter)).context["elsewhere"][0]

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
    assert admin_client.get(f"{LIST}12345/redrive/").status_code == 404
    assert admin_client.get(f"{LIST}abc/redrive/").status_code == 404


def test_ages_are_told_in_words(admin_client, letter):
    assert "just now" in text(admin_client.get(LIST))

    DeadLetter.objects.update(parked_at=timezone.now() - timedelta(hours=3))

    assert "3 hours ago" in text(admin_client.get(LIST))


def test_ages_are_told_without_time_zones_too(settings):
    settings.USE_TZ = False

    assert "3\xa0hours ago" in ago(timezone.now() - timedelta(hours=3))
    assert ago(None) == "-"


# What the state says.


def test_a_dead_letter_that_failed_again_says_in_which_round(admin_client, bus, letter):
    redrive([letter.pk], by="ada", using="default")
    assert "re-driving in round 1" in text(admin_client.get(LIST))

    bus.drain()

    assert "failed again in round 1" in text(admin_client.get(LIST))
    assert "attempt 1 of round 1" in text(admin_client.get(INBOX))
    assert admin_client.get(page_of(letter)).context["original"].redriven_by == "ada"


def test_a_healed_dead_letter_says_in_which_round(admin_client, bus, charge, letter):
    charge.error = None
    redrive([letter.pk], by="ada", using="default")
    bus.drain()

    assert "healed in round 1" in text(admin_client.get(LIST))


def test_an_unanswered_dead_letter_says_why(admin_client, bus, letter):
    redrive([letter.pk], by="ada", using="default")
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))
    give_up_waiting("default")

    assert "unanswered: Nothing was heard of it for 1h." in text(admin_client.get(LIST))


# Foreign content.


def test_script_in_payload_headers_and_error_stays_text(admin_client, bus):
    subscribed(bus, error=GiveUp(SCRIPT))
    bus.put(body=b'{"note": "%s"}' % SCRIPT.encode(), headers={SCRIPT: SCRIPT}, type="order.placed")
    bus.put(body=SCRIPT.encode(), type=f"order.{SCRIPT}")
    bus.drain()
    assert DeadLetter.objects.count() == 2

    pages = [page_of(each) for each in (*DeadLetter.objects.all(), InboxRecord.objects.get())]
    asked = choose(admin_client, "redrive", DeadLetter.objects.all())
    for response in (asked, *(admin_client.get(path) for path in (LIST, INBOX, *pages))):
        assert SCRIPT not in response.content.decode()
    assert escape(SCRIPT) in admin_client.get(pages[0]).content.decode()


def test_a_sixteen_mebibyte_body_is_shown_cut(admin_client, bus):
    subscribed(bus)
    bus.put(body=b'{"note": "' + b"x" * (16 * 1024 * 1024) + b'"}')
    bus.drain()

    began = time.monotonic()
    response = admin_client.get(page_of(bus.letter))

    assert "Only the first 32.0" in text(response)
    assert len(response.content) < 200_000
    assert time.monotonic() - began < 2


def test_an_undecodable_body_is_shown_as_a_dump(admin_client, bus):
    subscribed(bus)
    bus.put(body=b"\xff\xfe<b>\x00 no text")
    bus.drain()

    shown = admin_client.get(page_of(bus.letter)).content.decode()

    assert "00000000  ff fe 3c 62 3e 00 20 6e 6f 20 74 65 78 74" in shown
    assert "..&lt;b&gt;. no text" in shown


@pytest.mark.parametrize(
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
    assert excerpts.excerpt(start, size).text == shown


def test_a_body_that_grows_when_indented_is_cut():
    body = b"[" * 500 + b"0," * 10_000 + b"0" + b"]" * 500

    shown = excerpts.excerpt(body, len(body)).text

    assert len(shown) <= excerpts.TEXT_LIMIT + len("… (cut)")
    assert shown.endswith("… (cut)")


def test_many_and_long_headers_are_cut():
    headers = {f"h{number:03}": "x" * 5000 for number in range(150)}

    shown = excerpts.headers_of({**headers, "a": ["list", {"of": 1}]})

    assert "51 more headers are not shown" in shown
    assert "[&quot;list&quot;, {&quot;of&quot;: 1}]" in shown
    assert len(shown) < 150_000


# Re-drive.


def test_redrive_from_the_list_heals_the_dead_letter(admin_client, bus, charge, letters):
    charge.error = None

    asked = choose(admin_client, "redrive", letters)
    done = confirm(admin_client, asked)
    bus.drain()

    assert "3 re-driven." in text(done)
    assert states() == ["healed"] * 3
    assert Effect.objects.count() == 3
    assert {each.redriven_by for each in DeadLetter.objects.all()} == {"admin"}


def test_redrive_from_the_page_leads_back_to_it(admin_client, letter):
    page = admin_client.get(page_of(letter))
    tool = next(each for each in page.context["tools"] if each["name"] == "Re-drive")

    done = confirm(admin_client, admin_client.get(tool["url"]))

    assert done.redirect_chain[-1][0] == page_of(letter)
    assert "1 re-driven." in text(done)
    assert states() == ["redriving"]
    assert done.context["tools"] == []


def test_the_confirmation_page_tells_what_moves_and_what_does_not(admin_client, bus, letters):
    subscribed(bus, "ship", error=GiveUp("no stock"))
    publish("order.placed", {})
    bus.drain()
    redrive([letters[0].pk], by="ada", using="default")

    asked = choose(admin_client, "redrive", DeadLetter.objects.all())

    shown = text(asked)
    assert "4 will be re-driven" in shown
    assert "1 stays as it is: re-driving" in shown
    queue = conf.queue()
    assert f"3 charge ValueError {queue} 1 ship GiveUp {queue}" in shown


def test_the_confirmation_page_says_when_nothing_can_move(admin_client, letter):
    redrive([letter.pk], by="ada", using="default")

    asked = choose(admin_client, "redrive", [letter])

    assert "There is nothing left to do" in text(asked)
    assert 'type="submit" class="default"' not in asked.content.decode()


def test_a_get_moves_nothing(admin_client, letters):
    for path in ("redrive/", "discard/", f"{letters[0].pk}/redrive/", f"{letters[0].pk}/discard/"):
        admin_client.get(LIST + path, {"selection": f"{letters[0].pk}_0", "reason": "none"})
    admin_client.get(LIST, {"action": "redrive", "_selected_action": letters[0].pk})

    assert states() == ["open"] * 3
    assert OutboxEvent.objects.filter(state="ready").count() == 0


def test_a_get_without_a_selection_leads_back_to_the_list(admin_client):
    assert admin_client.get(f"{LIST}redrive/").headers["Location"] == LIST


def test_choosing_an_action_moves_nothing_before_it_is_confirmed(admin_client, letters):
    choose(admin_client, "redrive", letters)
    choose(admin_client, "discard", letters)

    assert states() == ["open"] * 3


def test_a_post_without_a_csrf_token_is_refused(admin_user, letter):
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)

    response = client.post(f"{LIST}redrive/", {"selection": f"{letter.pk}_0"})

    assert response.status_code == 403
    assert states() == ["open"]


def test_a_user_without_the_right_gets_403_from_a_hand_made_post(letter):
    client = user_with("view_deadletter", "change_deadletter", "delete_deadletter")
    form = {"selection": f"{letter.pk}_0", "reason": "because"}

    for verb in ("redrive", "discard"):
        assert client.post(f"{LIST}{verb}/", form).status_code == 403
        assert client.post(f"{LIST}{letter.pk}/{verb}/", form).status_code == 403
        assert client.get(f"{LIST}{letter.pk}/{verb}/").status_code == 403
        choose(client, verb, [letter])
    assert states() == ["open"]


def test_a_user_without_the_right_is_offered_neither_action_nor_button(letter):
    client = user_with("view_deadletter", "discard_deadletter")

    choices = client.get(LIST).context["action_form"].fields["action"].choices
    tools = client.get(page_of(letter)).context["tools"]

    assert [name for name, _ in choices if name] == ["discard"]
    assert [each["name"] for each in tools] == ["Discard"]


def test_the_right_to_redrive_alone_does_not_show_dead_letters(letter):
    client = user_with("redrive_deadletter")

    assert client.get(f"{LIST}{letter.pk}/redrive/").status_code == 403


def test_two_admins_redriving_the_same_rows_move_each_once(admin_client, letters):
    first = choose(admin_client, "redrive", letters)
    other = user_with("view_deadletter", "redrive_deadletter")
    second = choose(other, "redrive", letters[:2])

    assert "2 re-driven." in text(confirm(other, second))
    assert "1 re-driven, 2 were no longer open." in text(confirm(admin_client, first))

    assert OutboxEvent.objects.filter(state="ready").count() == 3
    assert {each.round for each in DeadLetter.objects.all()} == {1}


@pytest.mark.postgres
def test_two_confirmations_at_the_same_moment_move_each_row_once(admin_client, bus, charge):
    charge.error = GiveUp("no")
    for number in range(20):
        publish("order.placed", {"order_id": number})
    bus.drain()
    asked = choose(admin_client, "redrive", DeadLetter.objects.all())
    start = threading.Barrier(2)

    def answer() -> None:
        client = Client()
        client.cookies = admin_client.cookies
        start.wait()
        client.post(asked.context["target"], {"selection": str(asked.context["preview"].selection)})
        connection.close()

    threads = [threading.Thread(target=answer) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(states()) == {"redriving"}
    assert OutboxEvent.objects.filter(state="ready").count() == 20
    assert LogEntry.objects.count() == 20


def test_a_dead_letter_that_failed_again_since_it_was_shown_does_not_move(
    admin_client, bus, letter
):
    asked = choose(admin_client, "redrive", [letter])
    redrive([letter.pk], by="ada", using="default")
    bus.drain()
    assert states() == ["open"]

    assert "0 re-driven, 1 was no longer open." in text(confirm(admin_client, asked))
    assert states() == ["open"]


def test_select_all_takes_the_rows_of_every_page(admin_client, bus, charge):
    charge.error = GiveUp("no")
    for number in range(52):
        publish("order.placed", {"order_id": number})
    bus.drain()
    some = DeadLetter.objects.order_by("pk")[:1]

    asked = choose(admin_client, "redrive", some, select_across="1", index="0")
    done = confirm(admin_client, asked)

    assert "52 re-driven." in text(done)
    assert set(states()) == {"redriving"}


def test_what_arrives_after_the_selection_was_shown_does_not_move(admin_client, bus, letter):
    asked = choose(admin_client, "redrive", [letter], select_across="1")
    publish("order.placed", {})
    bus.drain()

    assert "1 re-driven." in text(confirm(admin_client, asked))
    assert sorted(states()) == ["open", "redriving"]


def test_select_all_keeps_to_the_filter_and_leads_back_to_it(admin_client, bus, letters):
    subscribed(bus, "ship", error=GiveUp("no stock"))
    publish("order.placed", {})
    bus.drain()
    filtered = f"{LIST}?subscription=ship"

    asked = choose(admin_client, "redrive", letters[:1], path=filtered, select_across="1")
    done = confirm(admin_client, asked)

    assert done.redirect_chain[-1][0] == filtered
    assert DeadLetter.objects.get(state="redriving").subscription == "ship"


def test_more_than_one_request_can_take_is_said_and_cut(admin_client, letters, monkeypatch):
    monkeypatch.setattr(selections, "MOST_AT_ONCE", 2)

    asked = choose(admin_client, "redrive", letters)
    done = confirm(admin_client, asked)

    assert "There are 3, which is more than one request takes" in text(asked)
    assert "2 re-driven." in text(done)
    assert sorted(states()) == ["open", "redriving", "redriving"]


def test_a_selection_that_is_none_is_refused(admin_client, letter):
    for selection in ("1", "x_0", "1_0 2"):
        response = admin_client.post(f"{LIST}redrive/", {"selection": selection})

        assert response.status_code == 400
    assert admin_client.post(f"{LIST}redrive/").headers["Location"] == LIST
    assert states() == ["open"]


# Discard.


def test_discard_closes_the_dead_letter_with_its_reason(admin_client, bus, letter):
    done = confirm(admin_client, choose(admin_client, "discard", [letter]), reason="A test order.")

    assert "1 discarded." in text(done)
    assert "discarded: A test order." in text(done)
    assert InboxRecord.objects.get().state == "skipped"


def test_discard_wants_a_reason(admin_client, letters):
    asked = choose(admin_client, "discard", letters)

    for reason in ("", "   ", "x" * 1001):
        again = confirm(admin_client, asked, reason=reason)

        assert again.context["form"].errors["reason"]
        assert len(again.context["preview"].selection) == 3
    assert states() == ["open"] * 3


def test_discard_from_the_page_wants_a_reason_too(admin_client, letter):
    asked = admin_client.get(f"{page_of(letter).removesuffix('change/')}discard/")

    again = confirm(admin_client, asked)
    done = confirm(admin_client, again, reason="A test order.")

    assert again.context["form"].errors["reason"]
    assert done.redirect_chain[-1][0] == page_of(letter)
    assert states() == ["discarded"]


def test_discard_counts_what_was_no_longer_open(admin_client, letters):
    asked = choose(admin_client, "discard", letters)
    redrive([letters[0].pk], by="ada", using="default")

    done = confirm(admin_client, asked, reason="Test orders.")

    assert "2 discarded, 1 was no longer open." in text(done)


# Publish again.


def test_publish_again_sends_what_could_not_be_routed(admin_client, bus, unroutable):
    bus.subscribe("nobody.*")(lambda event: Effect.objects.create(event_id=event.meta.id))

    done = confirm(admin_client, choose(admin_client, "publish_again", [unroutable], OUTBOX))
    bus.drain()

    assert "1 is sent again." in text(done)
    assert Effect.objects.count() == 1
    assert "It was unroutable" in LogEntry.objects.get().change_message


def test_publish_again_moves_only_what_is_unsent(admin_client, bus, letter, unroutable):
    asked = choose(admin_client, "publish_again", OutboxEvent.objects.all(), OUTBOX)
    assert "1 stays as it is: published" in text(asked)
    confirm(admin_client, asked)

    assert "0 are sent again, 1 was no longer unsent." in text(confirm(admin_client, asked))


def test_publish_again_takes_the_right_to_change(unroutable):
    form = {"selection": f"{unroutable.pk}_unroutable"}
    viewer = user_with("view_outboxevent")
    changer = user_with("view_outboxevent", "change_outboxevent")

    assert viewer.post(f"{OUTBOX}publish_again/", form).status_code == 403
    assert changer.post(f"{OUTBOX}publish_again/", form).status_code == 302
    assert OutboxEvent.objects.get().state == "ready"


# The log.


def test_every_action_is_logged(admin_client, admin_user, letters):
    confirm(admin_client, choose(admin_client, "redrive", letters[:2]))
    confirm(admin_client, choose(admin_client, "discard", letters), reason="A test order.")

    logged = LogEntry.objects.order_by("pk")

    assert [(each.object_id, each.change_message) for each in logged] == [
        (str(letters[0].pk), "Re-driven: round 1."),
        (str(letters[1].pk), "Re-driven: round 1."),
        (str(letters[2].pk), "Discarded: A test order."),
    ]
    assert {each.user for each in logged} == {admin_user}


def test_what_did_not_move_is_not_logged(admin_client, letter):
    asked = choose(admin_client, "redrive", [letter])
    redrive([letter.pk], by="ada", using="default")

    confirm(admin_client, asked)

    assert not LogEntry.objects.exists()


def test_the_history_page_tells_who_redrove_it(admin_client, letter):
    confirm(admin_client, choose(admin_client, "redrive", [letter]))

    shown = text(admin_client.get(f"{LIST}{letter.pk}/history/"))

    assert "admin Re-driven: round 1." in shown


# Pages under a strict policy.


def test_no_page_needs_inline_script_or_style_of_ours(admin_client, letter):
    asked = choose(admin_client, "discard", [letter])
    for response in (asked, admin_client.get(page_of(letter)), admin_client.get(LIST)):
        page = response.content.decode()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", page)
