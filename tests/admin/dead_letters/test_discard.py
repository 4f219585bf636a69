"""Discard, restore, ignore, edit, patch, export and audit, page by page."""

from __future__ import annotations

import csv
import io
import json
from datetime import timedelta
from urllib.parse import parse_qsl

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient
from django.utils import timezone

from django_eventbus import Event, publish
from django_eventbus.admin.dead_letters import discard, export
from django_eventbus.admin.dead_letters.export import cell
from django_eventbus.admin.dead_letters.model_admin import pytest_of
from django_eventbus.dead_letters import audit
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import (
    AuditEntry,
    DeadLetter,
    FailureGroup,
    InboxRecord,
    OutboxEvent,
    Plan,
)
from django_eventbus.redrive import dry_runs, plans
from django_eventbus.redrive.discards import start_plan, unpaced
from django_eventbus.redrive.letters import redrive
from django_eventbus.subscriptions.subscription import registry
from tests.admin.dead_letters.test_dry_run import (
    DRY_RUN,
    GROUPS,
    LIST,
    PACE,
    PLANS,
    SCRIPT,
    carry_out,
    planned,
)
from tests.admin.test_admin import Handler, page_of, states, subscribed, text, user_with
from tests.redrive.test_discards import held_by_a_handler
from tests.shop.models import Effect
from tests.support.tables import table

SEE = "see_sensitive_deadletter"


class OrderPlaced(Event, type="order.placed"):
    order_id: int
    total: str = "0"


@pytest.fixture
def charge(bus) -> Handler:
    return subscribed(bus)


@pytest.fixture
def letters(bus, charge) -> list[DeadLetter]:
    for number in range(3):
        publish("order.placed", {"order_id": number}, headers={"tenant": "acme"})
    bus.drain()
    return list(DeadLetter.objects.order_by("pk"))


@pytest.fixture
def letter(letters) -> DeadLetter:
    return letters[0]


def confirm(client, shown, **answers):
    form = {"selection": shown.context["selection"], **answers}
    return client.post(shown.wsgi_request.path, form, follow=True)


# Discard, restore, ignore.


def test_discard_wants_a_reason_and_leads_back_to_the_list(admin_client, letters):
    asked = admin_client.get(f"{GROUPS}discard/?type=order.placed")

    for reason in ("", "   ", "x" * 1001):
        assert confirm(admin_client, asked, reason=reason).context["form"].errors["reason"]
    done = confirm(admin_client, asked, reason="Test orders.")

    assert "3 dead letters were discarded." in text(done)
    assert states() == ["discarded"] * 3
    assert set(InboxRecord.objects.values_list("state", flat=True)) == {"skipped"}
    entry = AuditEntry.objects.get(verb="discarded")
    assert (entry.by, entry.why, entry.count) == ("admin", "Test orders.", 3)


def test_a_discard_is_told_with_the_way_to_its_plan_to_who_may_see_plans(letters):
    rights = ("view_deadletter", "discard_deadletter")
    for client in (user_with(*rights), user_with(*rights, "view_plan")):
        asked = client.get(f"{GROUPS}discard/?id={letters.pop().pk}&queue={letters[0].queue}")
        done = confirm(client, asked, reason="Test orders.")

        assert "1 dead letter was discarded." in text(done)
        plan, user = Plan.objects.latest("pk"), done.context["user"]
        assert (page_of(plan) in done.text) == user.has_perm("eventbus.view_plan")


def test_discard_from_the_page_leads_back_to_it(admin_client, letter):
    asked = admin_client.get(f"{GROUPS}discard/?id={letter.pk}")

    done = confirm(admin_client, asked, reason="A test order.")

    assert done.redirect_chain[-1][0] == page_of(letter)
    assert "discarded: A test order." in text(done)
    assert "Discarded by admin" in text(done)


@pytest.mark.parametrize("ticked", [1, 2])
def test_a_discard_of_what_was_ticked_leads_back_to_the_list_one_came_from(
    admin_client, letters, ticked
):
    listed = f"{LIST}?type=order.placed&state=open"
    back = admin_client.get(listed).context["back_query"]
    ids = [each.pk for each in letters[:ticked]]
    asked = admin_client.get(f"{GROUPS}discard/", {"id": ids, "back": back})

    assert asked.context["back"] == listed
    done = confirm(admin_client, asked, reason="Test orders.", back=asked.context["back_query"])

    assert done.redirect_chain[-1][0] == listed
    assert "discarded." in text(done)
    assert done.context["count"] == 3 - ticked


def test_a_discard_of_all_leads_back_to_the_list_as_it_is_now(admin_client, bus, letters):
    every = admin_client.get(f"{LIST}?type=order.placed&state=open").context["for_all"][1]
    asked = admin_client.get(every.url)
    publish("order.placed", {})
    bus.drain()

    done = confirm(admin_client, asked, reason="Test orders.")

    assert done.redirect_chain[-1][0] == f"{LIST}?type=order.placed&state=open"
    assert done.context["count"] == 1


def test_what_arrives_after_it_was_shown_is_not_discarded(admin_client, bus, letters):
    asked = admin_client.get(f"{GROUPS}discard/?type=order.placed")
    publish("order.placed", {})
    bus.drain()
    redrive([letters[0].pk], by="ada", using="default")

    done = confirm(admin_client, asked, reason="Test orders.")

    assert "2 dead letters were discarded." in text(done)
    assert sorted(states()) == ["discarded", "discarded", "open", "redriving"]


def test_the_page_tells_what_stays_as_it_is(admin_client, letters):
    redrive([letters[0].pk], by="ada", using="default")

    shown = text(admin_client.get(f"{GROUPS}discard/?type=order.placed"))

    assert "2 dead letters" in shown
    assert "1 stays as it is: re-driving" in shown


def test_more_than_can_be_ignored_at_once_is_refused(admin_client, letters, monkeypatch):
    monkeypatch.setattr(discard, "IGNORE_LIMIT", 2)
    asked = admin_client.get(f"{GROUPS}ignore/?type=order.placed")

    again = confirm(admin_client, asked, reason="Test orders.")

    assert "This is more than one request can change" in text(again)
    assert not DeadLetter.objects.exclude(ignored_until=None).exists()


def test_a_discard_that_takes_longer_than_a_request_leads_to_its_plan(
    admin_client, bus, monkeypatch
):
    rows = [DeadLetter(message_id=str(each), queue="q", body=b"") for each in range(501)]
    DeadLetter.objects.bulk_create(rows)
    monkeypatch.setattr(discard, "TIME_LIMIT", 0)
    asked = admin_client.get(f"{GROUPS}discard/?queue=q")
    followed = confirm(admin_client, asked, reason="Test orders.")

    plan = Plan.objects.get()
    assert followed.request["PATH_INFO"] == page_of(plan)
    assert f"Plan {plan.pk}: discard" in text(followed)
    assert "The workers continue the plan." in text(followed)
    assert "500 of 501 settled" in text(followed)
    bus.relay()
    assert "501 of 501 settled" in text(admin_client.get(page_of(plan)))


def test_who_may_not_see_plans_is_led_back_to_the_list(bus, monkeypatch):
    rows = [DeadLetter(message_id=str(each), queue="q", body=b"") for each in range(501)]
    DeadLetter.objects.bulk_create(rows)
    monkeypatch.setattr(discard, "TIME_LIMIT", 0)
    client = user_with("view_deadletter", "discard_deadletter")

    followed = confirm(client, client.get(f"{GROUPS}discard/?queue=q"), reason="Test orders.")

    assert followed.request["PATH_INFO"] == LIST
    assert "The workers continue the plan." in text(followed)


def test_a_plan_that_discards_is_steered_by_who_may_discard(bus, letters):
    selection = Selection.from_words(["type=order.placed"])
    pace = unpaced(canary=1)
    plan = start_plan("discard", selection, by="ada", reason="x", using="default", pace=pace)
    bus.relay()
    bus.relay()
    url = f"{PLANS}{plan.pk}/resume/now/"
    may_redrive = user_with("view_plan", "view_deadletter", "redrive_deadletter")
    may_discard = user_with("view_plan", "view_deadletter", "discard_deadletter", "view_auditentry")

    assert may_redrive.post(url).status_code == 403
    assert may_discard.post(url).status_code == 302
    bus.relay()

    assert states() == ["discarded"] * 3


def test_what_was_discarded_is_restored_and_heals(admin_client, bus, charge, letters):
    confirm(admin_client, admin_client.get(f"{GROUPS}discard/?state=all"), reason="Test orders.")

    done = confirm(admin_client, admin_client.get(f"{GROUPS}restore/?state=discarded"))
    assert "3 dead letters were restored." in text(done)
    assert states() == ["open"] * 3
    charge.error = None
    planned(admin_client, "type=order.placed")
    carry_out(bus)

    assert states() == ["healed"] * 3


def test_what_is_ignored_is_not_in_the_list_until_it_is_asked_for(admin_client, letter):
    until = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    asked = admin_client.get(f"{GROUPS}ignore/?id={letter.pk}")

    assert confirm(admin_client, asked, until="2001-01-01T00:00").context["form"].errors["until"]
    assert "1 dead letter is ignored." in text(confirm(admin_client, asked, until=until))

    assert admin_client.get(LIST, follow=True).context["count"] == 2
    assert admin_client.get(f"{LIST}?ignored=yes&state=open").context["count"] == 1
    assert "1 dead letter is shown again." in text(confirm(admin_client, asked, until=""))
    assert admin_client.get(LIST, follow=True).context["count"] == 3


@pytest.mark.postgres
def test_what_is_under_way_is_left_out_when_the_rest_is_ignored(admin_client, letters):
    until = (timezone.now() + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")
    asked = admin_client.get(f"{GROUPS}ignore/?type=order.placed")

    with held_by_a_handler(letters[0]):
        done = confirm(admin_client, asked, until=until)

    assert "2 dead letters are ignored." in text(done)
    assert "1 dead letter was not changed because its handler is running." in text(done)


@pytest.mark.parametrize("until", ["9999-12-31T23:59", "9999-01-01T00:00"])
def test_the_latest_time_to_ignore_until_can_be_told_in_every_time_zone(
    admin_client, letter, settings, until
):
    settings.TIME_ZONE = "America/New_York"
    asked = admin_client.get(f"{GROUPS}ignore/?id={letter.pk}")
    group = f"{GROUPS}groups/{letter.fingerprint}/"

    refused = confirm(admin_client, asked, until=until)
    refused_group = admin_client.post(group, {"verb": "ignore", "until": until})

    assert "The latest time is 9998-12-31 23:59." in text(refused)
    assert "The latest time is 9998-12-31 23:59." in text(refused_group)
    confirm(admin_client, asked, until="9998-12-31T23:59")
    admin_client.post(group, {"verb": "ignore", "until": "9998-12-31T23:59"})
    for path in (GROUPS, f"{LIST}?ignored=yes&state=open", page_of(letter), group):
        assert admin_client.get(path).status_code == 200


def test_closing_takes_the_right_and_a_post(admin_client, letter):
    client = user_with("view_deadletter", "redrive_deadletter")

    for verb in ("discard", "restore", "ignore"):
        path, form = f"{GROUPS}{verb}/", {"selection": f"id={letter.pk}", "reason": "because"}
        admin_client.get(path, form)
        words = "You need the permission eventbus.discard_deadletter."
        assert words in text(client.get(f"{path}?state=all"))
        assert client.post(path, form).status_code == 403
    assert states() == ["open"] * 3
    assert not AuditEntry.objects.exists()


def test_buttons_are_those_of_the_state(admin_client, letters):
    def labels(path):
        shown = admin_client.get(path).context
        return [each.label for each in shown.get("for_all") or shown["buttons"]]

    confirm(admin_client, admin_client.get(f"{GROUPS}discard/?id={letters[0].pk}"), reason="no")

    assert labels(f"{LIST}?state=discarded") == ["Restore…"]
    assert labels(f"{LIST}?state=open") == ["Re-drive…", "Discard…", "Ignore until…"]
    assert labels(page_of(letters[0])) == ["Restore…"]
    assert labels(page_of(letters[1]))[-1] == "Edit and re-drive…"


# Edit.


def edited(client, letter, payload, headers="{}", step="review", **answers):
    form = {"payload": payload, "headers": headers, "reason": "mended", "round": letter.round}
    return client.post(f"{GROUPS}{letter.pk}/edit/", {**form, step: "1", **answers}, follow=True)


def test_an_edited_message_heals_in_the_place_of_the_dead_letter(admin_client, bus, letter):
    handled: list = []
    bus_charge(bus, handled)

    review = edited(admin_client, letter, '{"order_id": 43}', '{"tenant": "umbrella"}')
    assert states() == ["open"] * 3
    done = edited(admin_client, letter, '{"order_id": 43}', '{"tenant": "umbrella"}', "send")
    bus.drain()

    lines = [each.text for each in review.context["diff"] if each.kind in ("added", "removed")]
    assert '-    "order_id": 0' in lines
    assert '+    "order_id": 43' in lines
    assert '+    "tenant": "umbrella"' in lines
    assert "Sent as" in text(done)
    assert [event.payload for event in handled] == [{"order_id": 43}]
    assert handled[0].meta.causation_id == letter.message_id
    letter.refresh_from_db()
    assert letter.state in ("replaced", "healed")
    assert AuditEntry.objects.get().why == "mended"
    shown = text(admin_client.get(page_of(letter)))
    assert "Edited and re-driven by admin: round 1" in shown
    assert handled[0].meta.id in shown


def bus_charge(bus, handled) -> None:
    """Let the subscription charge succeed, and keep what it is given."""
    for each in [each for each in registry if each.name == "charge"]:
        registry.remove(each)
    bus.subscribe("order.*", name="charge")(handled.append)


def test_the_editor_shows_the_message_and_locks_the_headers_of_the_bus(admin_client, letter):
    shown = admin_client.get(f"{GROUPS}{letter.pk}/edit/")

    initial = shown.context["form"].initial
    assert json.loads(initial["payload"]) == {"order_id": 0}
    assert json.loads(initial["headers"]) == {"tenant": "acme"}
    assert "eventbus-version" in text(shown)
    refused = edited(admin_client, letter, "{}", '{"x-retry-count": 1}', "send")
    assert "reserved" in str(refused.context["form"].errors["headers"])


def test_the_editor_and_the_review_name_the_message_and_what_was_wrong_with_it(
    admin_client, letter
):
    review = edited(admin_client, letter, '{"order_id": 1}')

    assert "Changes" in text(review)
    for shown in (admin_client.get(f"{GROUPS}{letter.pk}/edit/"), review):
        link = f'<a href="{page_of(letter)}">order.placed {letter.message_id}</a>'
        assert link in shown.content.decode()
        assert "Subscription charge Error ValueError: the card is broken" in text(shown)


def test_a_message_in_which_nothing_was_changed_is_not_sent(admin_client, letter):
    for step in ("review", "send"):
        refused = edited(admin_client, letter, '{"order_id": 0}', '{"tenant": "acme"}', step)
        assert "To send the message unchanged and under its own id, re-drive it." in text(refused)
    changed = edited(admin_client, letter, '{"order_id": false}', '{"tenant": "acme"}')

    assert states() == ["open"] * 3
    assert '+    "order_id": false' in [each.text for each in changed.context["diff"]]


def test_what_cannot_be_read_is_written_anew_for_whoever_takes_it(admin_client, bus):
    handled: list = []
    bus.put(type="order.placed", body=b'{"order_id": 4,}')
    bus_charge(bus, handled)
    bus.drain()
    letter = bus.letter

    shown = admin_client.get(f"{GROUPS}{letter.pk}/edit/")
    done = edited(admin_client, letter, '{"order_id": 4}', step="send")
    bus.drain()

    assert shown.context["form"].initial["payload"] == ""
    assert "The message reached no subscription." in text(shown)
    assert "(charge)" in text(shown)
    assert "Write a new payload" in text(shown)
    assert f'<a href="{page_of(letter)}">Reload</a>' in done.content.decode()
    assert [event.payload for event in handled] == [{"order_id": 4}]


def test_what_nobody_would_be_given_cannot_be_edited(admin_client, bus):
    bus.put(type="", body=b"{")
    bus_charge(bus, [])
    bus.drain()
    letter = bus.letter

    assert "No subscription on its queue would receive" in text(admin_client.get(page_of(letter)))
    assert admin_client.get(f"{GROUPS}{letter.pk}/edit/").status_code == 403


def test_errors_are_told_by_field(admin_client, bus):
    bus.subscribe(OrderPlaced, name="charge", tries=1)(Handler())
    publish(OrderPlaced(order_id=1))
    bus.drain()
    letter = bus.letter

    for payload, words in (
        ('{"order_id": "x", "total": 1}', ("order_id", "total")),
        ("{}", ("order_id is missing",)),
        ('{"order_id": 1,', ("Line 1, column 16",)),
        ('{"order_id": NaN}', ("NaN is not JSON",)),
        (f'{{"order_id": {"1" * 5000}}}', ("It contains a number with too many digits.",)),
        ('{"order_id": 1, "total": {"a": 1, "a": 2}}', ("appears twice",)),
        ("", ("This field is required",)),
    ):
        errors = str(edited(admin_client, letter, payload, step="send").context["form"].errors)
        assert all(each in errors for each in words), errors
    wrong = edited(admin_client, letter, '{"order_id": 1}', "[]", "send")
    assert "Enter a JSON object" in str(wrong.context["form"].errors["headers"])
    assert OutboxEvent.objects.exclude(queue="").count() == 0


def test_an_edit_of_what_was_redriven_meanwhile_is_not_sent(admin_client, bus, letter):
    redrive([letter.pk], by="ada", using="default")
    bus.drain()

    again = edited(admin_client, letter, "{}", step="send")

    assert "was re-driven in the meantime" in text(again)
    assert OutboxEvent.objects.filter(headers__has_key="x-edited-from").count() == 0


def test_editing_takes_a_right_of_its_own(letter):
    rights = ("view_deadletter", "redrive_deadletter", "discard_deadletter")
    client, editor = user_with(*rights), user_with(*rights, "edit_deadletter")

    assert client.get(f"{GROUPS}{letter.pk}/edit/").status_code == 403
    assert edited(client, letter, "{}", step="send").status_code == 403
    assert "You need the permission eventbus.edit_deadletter." in text(client.get(page_of(letter)))
    assert editor.get(f"{GROUPS}{letter.pk}/edit/").status_code == 200
    assert editor.get(f"{GROUPS}0/edit/").status_code == 404


def test_what_is_partly_hidden_is_not_edited(letter, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDACT": ["order_id"]}
    client = user_with("view_deadletter", "edit_deadletter")
    seer = user_with("view_deadletter", "edit_deadletter", SEE, "view_plan")

    assert client.get(f"{GROUPS}{letter.pk}/edit/").status_code == 403
    assert f"You need the permission eventbus.{SEE}." in text(client.get(page_of(letter)))
    assert seer.get(f"{GROUPS}{letter.pk}/edit/").status_code == 200


# A patch over a selection.


def tried(client, patch, query="type=order.placed", **answers):
    """Look at the dry run of a selection, and then at that with *patch*."""
    shown = client.get(f"{DRY_RUN}?{query}")
    form = {"selection": shown.context["selection"], "patch": patch, "tried": "", "try": "yes"}
    return client.post(DRY_RUN, {**form, **PACE, **answers})


def started(client, shown, patch, **answers):
    """Press *Start the re-drive* on a dry run."""
    form = {"selection": shown.context["selection"], "patch": patch, **PACE, **answers}
    return client.post(DRY_RUN, {**form, "tried": shown.context["change"].as_tried})


def test_a_patch_is_tried_and_then_heals_a_selection(admin_client, bus, letters):
    handled: list = []
    bus_charge(bus, handled)
    patch = '{"currency": "EUR"}'

    shown = tried(admin_client, patch)
    assert shown.context["forecast"].count == 3
    assert not Plan.objects.exists()
    made = started(admin_client, shown, patch)
    carry_out(bus)

    assert {event.payload["currency"] for event in handled} == {"EUR"}
    assert Plan.objects.get().patch == {"currency": "EUR"}
    assert "currency" in text(admin_client.get(made.headers["Location"]))


@pytest.mark.parametrize(
    ("seen", "typed"), [("", '{"a": 1}'), ('{"a": 1}', '{"a": true}'), ('{"a": 1}', "")]
)
def test_a_patch_that_was_not_dry_run_is_dry_run_before_anything_is_started(
    admin_client, letters, seen, typed
):
    shown = tried(admin_client, seen)

    again = started(admin_client, shown, typed, reason="It was wrong.", rate="7")

    assert not Plan.objects.exists()
    assert "Nothing was started" in text(again)
    assert again.context["change"]["patch"].value() == typed
    assert (again.context["form"]["reason"].value(), again.context["form"]["rate"].value()) == (
        "It was wrong.",
        "7",
    )
    assert started(admin_client, again, typed).status_code == 302
    assert Plan.objects.get().patch == (json.loads(typed) if typed else None)


def test_a_dry_run_with_a_patch_keeps_what_was_typed_and_complains_of_nothing(
    admin_client, letters, monkeypatch
):
    monkeypatch.setattr(plans, "REASON_ABOVE", 2)

    shown = tried(admin_client, '{"a": 1}', reason="", limit="2", canary="x")

    form = shown.context["form"]
    assert (form["limit"].value(), form["canary"].value()) == ("2", "x")
    assert not form.errors


def test_a_dry_run_with_a_patch_shows_what_changes_in_one_of_them(admin_client, letters):
    shown = tried(admin_client, '{"currency": "EUR", "order_id": null}')

    lines = {(line.kind, line.text) for line in shown.context["example"]}
    assert {("removed", '-  "order_id": 0'), ("added", '+  "currency": "EUR"')} <= lines
    assert "Changes in one of them" in text(shown)
    assert "Changes in one of them" not in text(tried(admin_client, ""))


def test_what_a_patch_changes_is_hidden_from_who_may_not_see_it(letters, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDACT": ["order_id"]}
    client = user_with("view_deadletter", "redrive_deadletter", "edit_deadletter")

    shown = tried(client, '{"order_id": 0}')

    assert shown.context["example"] == []


def test_a_patch_that_makes_payloads_invalid_is_told_by_the_dry_run(admin_client, bus):
    bus.subscribe(OrderPlaced, name="charge", tries=1)(Handler())
    publish(OrderPlaced(order_id=1))
    bus.drain()
    letter = DeadLetter.objects.get()

    shown = tried(admin_client, '{"order_id": null}')

    assert shown.context["forecast"].invalid == 1
    assert "0 would be re-driven of 1" in text(shown)
    assert "1 payload invalid with this patch: the plan would skip them" in text(shown)
    assert f"Dead letter order.placed ({letter.pk})" in text(shown)
    assert "OrderPlaced: order_id is missing" in text(shown)


def test_of_a_sample_it_is_told_about_how_many_a_patch_fits(admin_client, bus, monkeypatch):
    bus.subscribe(OrderPlaced, name="charge", tries=1)(Handler())
    for number in range(4):
        publish(OrderPlaced(order_id=number))
    bus.drain()
    monkeypatch.setattr(dry_runs, "ALL", 2)
    monkeypatch.setattr(dry_runs, "SAMPLE", 2)
    monkeypatch.setattr(dry_runs, "PLACES", 1)

    shown = text(tried(admin_client, '{"order_id": null}'))

    assert "about 0 would be re-driven of 4" in shown


@pytest.mark.parametrize(
    ("patch", "sentence"),
    [("{", "Line 1, column 2"), ("null", "Enter a JSON object"), ("[1]", "Enter a JSON object")],
)
def test_a_patch_that_is_none_is_said_and_makes_no_plan(admin_client, letters, patch, sentence):
    refused = planned(admin_client, "type=order.placed", patch=patch)

    assert sentence in text(refused)
    assert not Plan.objects.exists()


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ('"\\u0000"', "This patch cannot be stored"),
        ('"\\ud800"', "This patch cannot be stored"),
        ("1e400", "This patch cannot be stored"),
        ("1" * 5000, "It contains a number with too many digits."),
    ],
    ids=["NUL", "surrogate", "endless", "digits"],
)
def test_a_patch_that_cannot_be_stored_is_said_by_its_dry_run(
    admin_client, letters, value, sentence
):
    patch = f'{{"a": {value}}}'
    shown = tried(admin_client, patch)

    refused = started(admin_client, shown, patch, tried=shown.context["change"].as_tried)

    assert sentence in text(shown)
    assert sentence in text(refused)
    assert not Plan.objects.exists()


def test_a_patch_takes_the_right_to_edit(letters):
    client = user_with("view_deadletter", "redrive_deadletter", "view_plan")

    assert "You need the permission eventbus.edit_deadletter." in text(
        client.get(f"{DRY_RUN}?state=all")
    )
    assert planned(client, "type=order.placed", patch='{"a": 1}').status_code == 403
    assert planned(client, "type=order.placed").status_code == 302


# Export.


def exported(client, query) -> str:
    response = client.get(f"{GROUPS}export/?{query}")
    assert "attachment" in response["Content-Disposition"]
    return b"".join(response.streaming_content).decode()


@pytest.mark.parametrize("kind", ["ndjson", "csv"])
def test_an_export_over_asgi_is_sent_while_it_is_read(admin_user, letters, monkeypatch, kind):
    monkeypatch.setattr(export, "BATCH_SIZE", 1)
    client = AsyncClient()
    client.force_login(admin_user)

    async def exported():
        response = await client.get(f"{GROUPS}export/?state=open&format={kind}")
        parts = aiter(response)
        first = await anext(parts)
        await DeadLetter.objects.filter(pk=letters[2].pk).aupdate(type="order.late")
        return first + b"".join([part async for part in parts])

    lines = async_to_sync(exported)().decode().splitlines()[-3:]
    assert ["order.late" in line for line in lines] == [False, False, True]


def test_an_export_goes_on_from_batch_to_batch(admin_client, letters, monkeypatch):
    monkeypatch.setattr(export, "BATCH_SIZE", 2)

    lines = exported(admin_client, "type=order.placed&format=ndjson").splitlines()

    assert [json.loads(line)["id"] for line in lines] == [each.pk for each in letters]


def only_shipping(user, verb, queue) -> bool:
    return verb == "view" or queue.endswith("shipping")


def test_discarding_may_be_for_some_queues_only(bus, letters, settings):
    subscribed(bus, "ship", queue="shipping")
    publish("order.placed", {})
    bus.drain()
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_shipping}
    client = user_with("view_deadletter", "discard_deadletter")

    for query, status in (("subscription=ship", 302), ("type=order.placed", 403)):
        form = {"selection": query, "reason": "because"}
        assert client.post(f"{GROUPS}discard/", form).status_code == status


def test_a_selection_is_exported_as_ndjson(admin_client, letters):
    lines = exported(admin_client, "payload.order_id=1&format=ndjson").splitlines()

    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.by, entry.count) == ("export", "admin", 1)
    assert (entry.filter, entry.outcome) == ("payload.order_id=1", {"format": "ndjson"})
    (row,) = map(json.loads, lines)
    assert row["message_id"] == letters[1].message_id
    assert row["payload"] == {"order_id": 1}
    assert row["headers"]["tenant"] == "acme"


def test_a_selection_is_exported_as_csv_that_is_no_formula(admin_client, bus, charge):
    charge.error = ValueError("=HYPERLINK(1)")
    publish("order.placed", {"note": "a, b"})
    bus.drain()

    (row,) = csv.DictReader(io.StringIO(exported(admin_client, "state=all&format=csv")))

    assert row["error"] == "'=HYPERLINK(1)"
    assert json.loads(row["payload"]) == {"note": "a, b"}


@table(
    ("value", "shown"),
    [(None, ""), (3, "3"), (-3, "-3"), ("-3", "'-3"), ("@a", "'@a"), ("+1", "'+1"),
     ("\t=1", "'\t=1"), ({"a": 1}, '{"a": 1}'), ("a=1", "a=1"), (" ", " "), (" a", " a"),
     *((f"{start}1", f"'{start}1") for start in (
        " =", "\u00a0+", "\u3000@", "\u200b=", "\ufeff-", "\x00=", " \t =", "\uff1d", "\uff0b",
        "\uff0d", "\uff20", " \uff1d", "\u2212", "\ufe66",
     ))],
)  # fmt: skip
def test_a_cell_is_never_a_formula(value, shown):
    assert cell(value) == shown


def test_an_export_hides_what_the_page_hides(letters, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDACT": ["order_id", "headers.tenant"]}
    client = user_with("view_deadletter")

    for form in ("ndjson", "csv"):
        found = exported(client, f"type=order.placed&format={form}")
        assert found.count("[redacted]") == 6
        assert "acme" not in found


def test_an_export_is_of_a_known_format_and_for_viewers(admin_client, letters):
    assert admin_client.get(f"{GROUPS}export/?format=xls").status_code == 400
    assert user_with("redrive_deadletter").get(f"{GROUPS}export/?format=csv").status_code == 403


def test_the_list_exports_what_it_shows(admin_client, letters):
    shown = admin_client.get(f"{LIST}?payload.order_id=1&state=open")

    label, url = shown.context["exports"][0]
    found = dict(parse_qsl(url.partition("?")[2]))
    assert (label, found["payload.order_id"], found["format"]) == ("NDJSON", "1", "ndjson")
    assert "as_of" in found


# Copies.


def test_a_dead_letter_is_copied_as_a_test_that_fails_as_it_did(admin_client, letter, eventbus):
    copies = admin_client.get(page_of(letter)).context["copies"]
    names: dict = {}
    exec(copies[0].text, names)

    with pytest.raises(AssertionError):
        names["test_charge_handles_order_placed"](eventbus)
    assert copies[1].text == (
        f"python manage.py redrive_events message_id={letter.message_id} subscription=charge"
    )


def test_a_copied_test_passes_once_the_handler_is_mended(charge, letter, eventbus):
    names: dict = {}
    exec(pytest_of(letter, ()), names)
    charge.error = None

    names["test_charge_handles_order_placed"](eventbus)

    assert Effect.objects.exists()


def test_a_copied_test_hides_what_the_page_hides(letter):
    assert "'order_id': '[redacted]'" in pytest_of(letter, ("order_id",))


def test_what_cannot_be_read_is_copied_as_a_command_only(admin_client, bus, charge):
    bus.put(body=b"\xff", id="it's")
    bus.drain()

    (command,) = admin_client.get(page_of(bus.letter)).context["copies"]

    assert command.text == "python manage.py redrive_events 'message_id=it'\"'\"'s'"


# The audit.


def test_the_audit_says_which_were_meant_and_what_came_of_it_in_words(admin_client, letters):
    asked = admin_client.get(f"{GROUPS}discard/?type=order.placed")
    confirm(admin_client, asked, reason="Test orders.")
    many = "id=" + ",".join(map(str, range(1000)))
    group = FailureGroup.objects.latest("created_at")
    for selection in ("outbox=1,2", "type=%C3%A4", f"group={group.pk}", many, ""):
        audit.record("discard", by="ada", selection=selection, using="default")

    listed = admin_client.get("/admin/eventbus/auditentry/")

    assert "type=order.placed, as of 20" in text(listed)
    assert "3 discarded" in text(listed)
    assert "pending" not in text(listed)
    assert "outbox=1,2" in text(listed)
    assert "type=ä" in text(listed)
    assert f"group=“{group}" in text(listed)
    assert "id=0,1,2," in text(listed)


def test_the_audit_tells_who_did_what_and_cannot_be_changed(admin_client, bus, letters):
    planned(admin_client, "type=order.placed", reason=SCRIPT)
    carry_out(bus)
    entries = "/admin/eventbus/auditentry/"

    listed = admin_client.get(entries)
    entry = AuditEntry.objects.earliest("pk")
    one = f"{entries}{entry.pk}/change/"

    assert "plan re-drive" in text(listed)
    assert f"{PLANS}{entry.plan_id}/change/" in listed.content.decode()
    assert SCRIPT not in listed.content.decode()
    assert SCRIPT not in admin_client.get(one).content.decode()
    assert admin_client.post(one, {"why": "nothing"}).status_code == 403
    assert admin_client.post(f"{entries}{entry.pk}/delete/", {"post": "yes"}).status_code == 403
    assert user_with("view_deadletter").get(entries).status_code == 403
