"""The page of one dead letter: what is shown of it, to whom, and how it came to be."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from django_eventbus import publish
from django_eventbus.admin.dead_letters.model_admin import pytest_of
from django_eventbus.admin.formatting import redacted_excerpt
from django_eventbus.admin.forms import format_json
from django_eventbus.dead_letters.redaction import HIDDEN, is_hidden, redacted
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.exceptions import BadEdit
from django_eventbus.models import DeadLetter, OutboxEvent, Plan
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import (
    discard,
    discard_selected,
    ignore_selected,
    restore_selected,
)
from django_eventbus.redrive.edited_message import Edit
from django_eventbus.redrive.letters import close_replaced, edit_and_redrive, redrive
from django_eventbus.redrive.runner import step_plans
from tests.admin.test_admin import Handler, page_of, subscribed, text
from tests.support.helpers import NO_SUCH_ID
from tests.support.tables import table

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PAYLOAD = {"order_id": 42, "password": "hunter2", "card": {"number": "4111", "holder": "Ada"}}


def viewer(*rights: str) -> Client:
    user = User.objects.create_user("viewer", is_staff=True)
    names = ("view_deadletter", "view_outboxevent", *rights)
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def charge(bus) -> Handler:
    return subscribed(bus)


@pytest.fixture
def letter(bus, charge) -> DeadLetter:
    publish("order.placed", PAYLOAD, headers={"authorization": "Bearer abc", "tenant": "a"})
    bus.drain()
    return bus.letter


@table(
    ("rules", "shown"),
    [
        ([], {"Card": {"number": 1}, "cards": [{"number": 2}], "number": 3}),
        (["number"], {"Card": {"number": HIDDEN}, "cards": [{"number": HIDDEN}], "number": HIDDEN}),
        (
            ["payload.card.number"],
            {"Card": {"number": HIDDEN}, "cards": [{"number": 2}], "number": 3},
        ),
        (["payload.*.number"], {"Card": {"number": HIDDEN}, "cards": [{"number": HIDDEN}], "number": 3}),
        (["CARD"], {"Card": HIDDEN, "cards": [{"number": 2}], "number": 3}),
        (["headers.number"], {"Card": {"number": 1}, "cards": [{"number": 2}], "number": 3}),
    ],
)  # fmt: skip
def test_a_rule_is_a_key_anywhere_or_a_path(rules, shown):
    payload = {"Card": {"number": 1}, "cards": [{"number": 2}], "number": 3}

    assert redacted(payload, "payload", rules) == shown


def test_a_path_leads_into_the_payload_of_an_envelope_too():
    for name in ("payload", "data"):
        body = {"meta": {}, name: {"card": {"number": "4111"}}}

        assert "4111" not in str(redacted(body, "payload", ["payload.card.number"]))


@table(
    ("rule", "path"),
    [
        ("payload.cards.number", "cards.number"),
        ("payload.cards.number", "cards.0.number"),
        ("payload.cards.number", "cards.-1.number"),
        ("payload.cards.number", "0.cards.0.1.number.raw"),
        ("payload.cards.number", "data.cards.0.number"),
        ("payload.cards.number", "0.data.cards.0.number"),
        ("payload.years.2024.cards.number", "years.2024.cards.0.number"),
        ("payload.*.number", "cards.0.number"),
        ("payload.*.*.number", "cards.0.number"),
        ("payload.cards.*.number", "cards.0.visa.number"),
        ("*.number", "0.number"),
        ("number", "cards.0.number"),
        ("Card-Number", "cards.0.card_number"),
        ("2024", "years.2024.total"),
    ],
)
def test_a_place_in_a_list_is_no_way_around_a_rule(rule, path):
    assert is_hidden(path.split("."), "payload", [rule])


@table(
    ("rule", "path"),
    [
        ("payload.cards.number", "cards.holder"),
        ("payload.cards.number", "number"),
        ("payload.cards.number", "cards.x.number"),
        ("payload.cards.number", "cards"),
        ("headers.number", "number"),
        ("payload.*.number", "number"),
        ("0", "cards.number"),
    ],
)
def test_a_path_that_no_rule_names_is_not_hidden(rule, path):
    assert not is_hidden(path.split("."), "payload", [rule])


def test_what_is_nested_too_deeply_to_check_is_hidden():
    payload: object = {"password": "hunter2"}
    for _ in range(200):
        payload = {"in": payload}

    assert "hunter2" not in str(redacted(payload, "payload", ["password"]))


def nested(depth: int, inmost: object) -> object:
    for _ in range(depth):
        inmost = [inmost]
    return inmost


def test_a_list_is_a_level_of_nesting_too():
    assert "hunter2" in str(redacted(nested(90, "hunter2"), "payload", ["password"]))
    assert "hunter2" not in str(redacted(nested(101, "hunter2"), "payload", ["password"]))
    assert "hunter2" not in str(redacted(nested(5000, "hunter2"), "payload", ["password"]))


@pytest.mark.parametrize("rights", [(), ("edit_deadletter", "see_sensitive_deadletter")])
def test_what_is_nested_deeply_has_its_pages(bus, charge, rights):
    bus.put(body=b"[" * 600 + b"]" * 600)
    bus.drain()
    client, groups, key = viewer(*rights), "/admin/eventbus/deadletter/", bus.letter.pk
    editor = {"payload": "[]", "headers": "{}", "reason": "mended", "round": 0}
    patch = {"selection": f"id={key}", "patch": '{"a": 1}', "try": "1"}

    pages = [page_of(bus.letter), groups, f"{groups}list/?state=open", f"{groups}dry-run/?id={key}"]
    assert [client.get(each).status_code for each in pages] == [200] * 4
    assert client.post(f"{groups}dry-run/", patch).status_code == 200
    allowed = 200 if rights else 403
    assert client.get(f"{groups}{key}/edit/").status_code == allowed
    assert client.post(f"{groups}{key}/edit/", editor).status_code == allowed
    for name in ("ndjson", "csv"):
        lines = client.get(f"{groups}export/?id={key}&format={name}").streaming_content
        assert bus.letter.message_id.encode() in b"".join(lines)


def test_what_is_nested_too_deeply_to_write_is_left_out_of_the_editor():
    assert format_json(nested(5000, 1)) == ""


def test_an_edit_that_is_nested_too_deeply_is_refused(letter):
    with pytest.raises(BadEdit, match=r"nested (too deeply|deeper)"):
        edit_and_redrive(
            letter.pk, Edit(payload=nested(5000, 1)), by="ada", reason="typo", using="default"
        )


def test_dashes_and_underscores_are_the_same_to_a_rule():
    assert redacted({"X-Api-Key": "abc"}, "headers", ["x_api_key"]) == {"X-Api-Key": HIDDEN}


def test_secrets_are_hidden_from_whoever_may_not_see_them(letter, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDACT": ["password", "payload.card.number", "authorization"]}  # fmt: skip

    shown = text(viewer().get(page_of(letter)))

    assert "hunter2" not in shown
    assert "4111" not in shown
    assert "Bearer" not in shown
    assert "Ada" in shown
    assert shown.count(HIDDEN) == 7


def test_secrets_are_shown_to_whoever_may_see_them(letter):
    shown = text(viewer("see_sensitive_deadletter").get(page_of(letter)))

    assert "hunter2" in shown
    assert "Bearer abc" in shown


def test_secrets_are_hidden_in_the_outbox_too(letter):
    shown = text(viewer().get(page_of(OutboxEvent.objects.get())))

    assert "hunter2" not in shown
    assert "Bearer" not in shown


@table(("start", "size"), [(b"\xff", 1), (b'{"password": "hun', 99), (b"", 0)])
def test_a_body_that_cannot_be_checked_is_not_shown(start, size):
    assert redacted_excerpt(start, size, ("password",)).text.startswith("Not shown")


def test_a_body_without_secrets_keeps_every_digit():
    assert redacted_excerpt(b'{"total":1.10}', 14, ("password",)).text == '{\n  "total": 1.10\n}'


def test_the_exact_bytes_are_downloaded_as_a_file(admin_client, bus, charge):
    bus.put(body=b"<script>alert(1)</script>")
    bus.drain()

    response = admin_client.get(page_of(bus.letter).replace("change", "body"))

    assert response.content == b"<script>alert(1)</script>"
    assert response["Content-Type"] == "application/octet-stream"
    assert response["Content-Disposition"].startswith("attachment")
    assert response["X-Content-Type-Options"] == "nosniff"


def test_the_bytes_are_for_whoever_may_see_what_is_sensitive(letter):
    path = page_of(letter).replace("change", "body")
    client = viewer()

    assert client.get(path).status_code == 403
    assert path not in client.get(page_of(letter)).text


def test_a_closed_download_says_which_right_is_missing(letter):
    shown = viewer().get(page_of(letter)).text

    tool = shown.partition(">Download the body</a>")[0].rpartition("<a ")[2]
    assert 'aria-disabled="true"' in tool
    assert "You need the permission eventbus.see_sensitive_deadletter." in tool
    assert "href" not in tool


def test_a_test_whose_values_are_hidden_says_so(letter):
    hidden, whole = pytest_of(letter, ("password",)), pytest_of(letter, ())
    of_a_header = pytest_of(letter, ("headers.tenant",))
    words = "# Values shown as '[redacted]' are hidden from you: replace them."

    assert words in hidden
    assert words in of_a_header
    assert words not in whole
    compile(hidden, "test.py", "exec")


def test_the_bytes_of_no_row_are_not_found(admin_client):
    assert admin_client.get(f"/admin/eventbus/deadletter/{NO_SUCH_ID}/body/").status_code == 404


def titles(client, letter) -> list[str]:
    return [entry.title for entry in client.get(page_of(letter)).context["timeline"]]


def test_the_timeline_tells_the_way_of_a_message(admin_client, bus, charge, letter):
    redrive([letter.pk], by="ada", using="default")
    bus.drain()
    charge.error = None
    redrive([letter.pk], by="grace", using="default")
    bus.drain()

    assert titles(admin_client, letter) == [
        "Published by shop-tests",
        "Relayed and confirmed by the broker",
        "Attempt 1 failed",
        "Attempt 2 failed",
        "Parked as a dead letter",
        "Re-driven by ada: round 1",
        "Relayed and confirmed by the broker",
        "Attempt 1 of round 1 failed",
        "Parked as a dead letter",
        "Re-driven by grace: round 2",
        "Relayed and confirmed by the broker",
        "Healed",
    ]


def test_the_timeline_names_host_tier_and_error_of_an_attempt(admin_client, letter):
    entries = admin_client.get(page_of(letter)).context["timeline"]
    first = next(each for each in entries if each.title == "Attempt 1 failed")

    assert first.details[0] == f"on {letter.host}"
    assert first.details[2] == "then in the tier 1s"
    assert first.error == "ValueError: the card is broken"


def test_the_timeline_tells_of_discarding(admin_client, letter):
    discard([letter.pk], reason="a test order", by="ada", using="default")

    assert titles(admin_client, letter)[-1] == "Discarded by ada"


def test_cause_and_effects_link_to_each_other(admin_client, bus):
    bus.subscribe("order.placed", name="bill")(lambda event: publish("bill.made", {}))
    bus.subscribe("bill.made", name="pay", tries=1)(Handler())
    bus.subscribe("order.placed", name="audit", tries=1)(Handler())
    publish("order.placed", {})
    bus.drain()
    effect = DeadLetter.objects.get(subscription="pay")
    cause = DeadLetter.objects.get(subscription="audit")

    of_effect = admin_client.get(page_of(effect)).content.decode()
    of_cause = admin_client.get(page_of(cause)).content.decode()

    assert page_of(cause) in of_effect
    assert page_of(effect) in of_cause
    assert page_of(OutboxEvent.objects.get(type="bill.made")) in of_cause


def test_a_cause_that_another_service_published_is_named(admin_client, bus, charge):
    bus.put(headers={"eventbus-causation": "far-away"})
    bus.drain()

    shown = text(admin_client.get(page_of(bus.letter)))

    assert "an event of another service far-away" in shown


@pytest.fixture
def traced(bus, charge) -> DeadLetter:
    publish("order.placed", {}, headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})
    bus.drain()
    return bus.letter


def test_the_trace_of_a_message_is_named_on_its_pages(admin_client, traced):
    for row in (traced, OutboxEvent.objects.get()):
        assert f"Trace id: {TRACE}" in text(admin_client.get(page_of(row)))


def test_the_trace_is_linked_if_a_setting_says_where_it_is(admin_client, traced, settings):
    settings.EVENTBUS = {
        **settings.EVENTBUS,
        "TRACE_URL": "https://jaeger.example/?q=a&t={trace_id}",
    }

    for row in (traced, OutboxEvent.objects.get()):
        page = admin_client.get(page_of(row)).content.decode()
        assert f'href="https://jaeger.example/?q=a&amp;t={TRACE}"' in page


def test_a_message_without_a_trace_has_no_field_for_it(admin_client, letter):
    for row in (letter, OutboxEvent.objects.get()):
        assert "Trace id" not in text(admin_client.get(page_of(row)))


def test_a_trace_that_a_rule_hides_is_not_shown(traced, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDACT": ["traceparent"]}

    assert TRACE not in viewer().get(page_of(traced)).content.decode()


# What went out in its place.


@pytest.fixture
def edited(bus, charge, letter) -> str:
    """The id of an edited message that is on its way in the place of the letter."""
    edit = Edit(payload={"order_id": 43})
    new = edit_and_redrive(letter.pk, edit, by="ada", reason="typo", using="default")
    bus.relay()
    close_replaced("default")
    return new


def replacement(client, letter):
    entries = client.get(page_of(letter)).context["timeline"]
    return next(each for each in entries if each.title.startswith("Replaced"))


def test_an_edited_message_is_awaited_until_it_is_handled_or_fails(admin_client, letter, edited):
    shown = replacement(admin_client, letter)

    row = OutboxEvent.objects.get(message_id=edited)
    assert (shown.title, shown.tone) == ("Replaced by the edited message: awaited", "")
    assert shown.links == ((edited, page_of(row)),)


def test_an_edited_message_that_failed_is_told_and_linked(admin_client, bus, letter, edited):
    bus.drain()

    shown = replacement(admin_client, letter)

    failed = DeadLetter.objects.get(message_id=edited)
    assert (shown.title, shown.tone) == ("Replaced by the edited message: failed again", "bad")
    assert shown.links == ((edited, page_of(failed)),)
    assert "replaced by an edited message: failed again" in text(admin_client.get(page_of(letter)))


def test_an_edited_message_that_was_handled_makes_it_good(
    admin_client, bus, charge, letter, edited
):
    charge.error = None
    bus.drain()

    shown = replacement(admin_client, letter)

    assert (shown.title, shown.tone) == ("Replaced by the edited message: healed", "good")


def test_an_edited_message_is_an_effect_of_the_first_one(admin_client, bus, letter, edited):
    bus.drain()
    failed = DeadLetter.objects.get(message_id=edited)

    effects = admin_client.get(page_of(letter)).context["lineage"].effects
    causes = admin_client.get(page_of(failed)).context["lineage"].causes

    assert [(each.message_id, each.is_edited) for each in effects] == [(edited, True)]
    assert [each["url"] for each in effects[0].letters] == [page_of(failed)]
    assert [each.message_id for each in causes] == [letter.message_id]


def test_an_effect_that_was_re_driven_is_shown_once(admin_client, bus):
    bus.subscribe("order.placed", name="bill")(lambda event: publish("bill.made", {}))
    bus.subscribe("bill.made", name="pay", tries=1)(Handler())
    publish("order.placed", {})
    bus.drain()
    redrive([bus.letter.pk], by="ada", using="default")
    bus.drain()

    cause = OutboxEvent.objects.get(type="order.placed")
    effects = admin_client.get(page_of(cause)).context["lineage"].effects

    assert [(each.row.type, each.is_edited) for each in effects] == [("bill.made", False)]


# What plans did.


def test_the_timeline_links_a_re_drive_to_its_plan(admin_client, bus, letter):
    selection, at_once = Selection.of_ids([letter.pk]), plans.Pace(canary=0, rate=1_000_000)
    made = plans.make_plan(selection, by="ada", reason="mended", using="default", pace=at_once)
    plans.start(made.pk, by="ada", using="default")
    step_plans("default")
    bus.drain()

    entries = admin_client.get(page_of(letter)).context["timeline"]

    shown = next(each for each in entries if each.title.startswith("Re-driven"))
    assert shown.links == ((f"Plan {made.pk}", page_of(made)),)


def test_the_timeline_keeps_a_discard_that_was_taken_back(admin_client, letter):
    ids = Selection.of_ids([letter.pk])
    discard_selected(ids, by="ada", reason="a test order", using="default")
    restore_selected(ids, by="grace", reason="it was none", using="default")
    discard_selected(ids, by="ada", reason="it was one", using="default")

    entries = admin_client.get(page_of(letter)).context["timeline"][-3:]

    assert [(each.title, each.details) for each in entries] == [
        ("Discarded by ada", ("a test order",)),
        ("Restored by grace", ("it was none",)),
        ("Discarded by ada", ("it was one",)),
    ]
    assert [each.links for each in entries] == [
        ((f"Plan {plan.pk}", page_of(plan)),) for plan in Plan.objects.order_by("pk")
    ]


def test_the_timeline_tells_who_ignored_it_until_when_and_why(admin_client, letter):
    until = timezone.now().astimezone(ZoneInfo("Asia/Tokyo")) + timedelta(days=1)
    for by, selection in (
        ("ada", Selection.of_ids([letter.pk])),
        ("grace", Selection.of_ids([letter.pk + 1])),
    ):
        ignore_selected(selection, until, by=by, reason="bank holiday", using="default")

    shown = text(admin_client.get(page_of(letter)))

    assert f"Ignored by ada until {timezone.localtime(until):%Y-%m-%d %H:%M}" in shown
    assert "bank holiday" in shown
    assert "Ignored by grace" not in shown

    ignore_selected(Selection(), None, by="ada", reason="", using="default")
    assert "Ignored by" not in text(admin_client.get(page_of(letter)))
