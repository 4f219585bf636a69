"""From the groups of failures to the end of a re-drive plan, page by page."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qsl, urlencode

import pytest
from django.contrib.admin.utils import quote
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from django_eventbus import GiveUp, publish
from django_eventbus.admin.dead_letters import changelist, groups
from django_eventbus.conf import conf
from django_eventbus.models import (
    AuditEntry,
    DeadLetter,
    FailureGroup,
    InboxMark,
    InboxRecord,
    OutboxEvent,
    Plan,
    PlannedLetter,
    Queue,
    Worker,
)
from django_eventbus.redrive import plans
from django_eventbus.redrive.letters import mark_unanswered, redrive
from django_eventbus.redrive.plans import progress
from django_eventbus.redrive.runner import step_plans
from tests.admin.test_admin import Handler, page_of, states, subscribed, text, user_with
from tests.shop.models import Effect
from tests.support.helpers import NO_SUCH_ID

GROUPS = "/admin/eventbus/deadletter/"
LIST = f"{GROUPS}list/"
DRY_RUN = f"{GROUPS}dry-run/"
PLANS = "/admin/eventbus/plan/"
SCRIPT = "<script>alert(1)</script>"
PACE = {"canary": 0, "rate": 1000, "in_flight": 100, "fail_percent": 20, "tries": 1}


@pytest.fixture
def charge(bus) -> Handler:
    return subscribed(bus)


@pytest.fixture
def letters(bus, charge) -> list[DeadLetter]:
    for number in range(3):
        publish("order.placed", {"order_id": number}, headers={"tenant": f"t{number}"})
    bus.drain()
    return list(DeadLetter.objects.order_by("pk"))


@pytest.fixture
def group(letters) -> FailureGroup:
    return FailureGroup.objects.get()


def planned(client, query: str, **answers):
    """Look at the dry run of a selection, and start the plan."""
    shown = client.get(f"{DRY_RUN}?{query}")
    return posted(client, shown, **answers)


def posted(client, shown, **answers):
    form = {"selection": shown.context["selection"], **PACE, **answers}
    return client.post(DRY_RUN, form)


def carry_out(bus) -> None:
    """Be the workers, until no plan has anything to do."""
    for _ in range(20):
        Plan.objects.update(paced_at=timezone.now() - timedelta(hours=1))
        step_plans("default")
        bus.drain()
    step_plans("default")


def ids_on(response) -> list[int]:
    return [row.letter.pk for row in response.context["rows"]]


# Groups.


def test_dead_letters_are_shown_in_groups_first(admin_client, bus, letters):
    subscribed(bus, "ship", error=GiveUp("no stock for 77"))
    publish("order.placed", {})
    bus.drain()

    cards = admin_client.get(GROUPS).context["cards"]

    assert [(each.group.row.subscription, each.group.count) for each in cards] == [
        ("charge", 4),
        ("ship", 1),
    ]
    assert cards[0].trend == "4 were parked in the last 24 hours, including closed ones"
    assert cards[0].bars[-1].height == 24
    assert cards[0].sample_url == page_of(DeadLetter.objects.filter(subscription="charge").last())


def test_what_is_no_failure_of_a_handler_lies_beside_the_groups(admin_client, bus, charge):
    bus.put(body=b"\xff")
    bus.drain()

    response = admin_client.get(GROUPS)

    assert response.context["cards"] == []
    title, count, url = response.context["beside"][0]
    assert (title, count) == ("Undecodable", 1)
    assert len(ids_on(admin_client.get(url, follow=True))) == 1


def test_a_dlq_that_nobody_collects_is_named_beside_the_groups(admin_client, bus, charge):
    name = conf.queue()
    Queue.objects.create(name=name, dlq=f"{name}.dlq", dlq_messages=205, measured_at=timezone.now())
    words = f"205 messages are in {name}.dlq, and no consumer collects them."
    link = f'<a href="/admin/eventbus/queue/{quote(name)}/change/">{words}</a>'

    waiting = admin_client.get(GROUPS).text
    elsewhere = admin_client.get(f"{GROUPS}?queue=another").text
    unlinked = user_with("view_deadletter").get(GROUPS).text
    Queue.objects.update(is_collected=True)
    collected = admin_client.get(GROUPS).text

    assert link in waiting
    assert "No dead letters are waiting." not in waiting
    assert words not in elsewhere
    assert words in unlinked
    assert link not in unlinked
    assert words not in collected
    assert "No dead letters are waiting." in collected


def test_nothing_waits_only_if_nothing_lies_beside_the_groups_either(admin_client, bus, charge):
    bus.put(body=b"\xff")
    bus.drain()

    assert "No dead letters are waiting." not in text(admin_client.get(GROUPS))


def test_a_dlq_of_a_queue_that_is_not_for_the_user_is_not_named(bus, charge, settings):
    subscribed(bus, "ship", queue="shipping")
    publish("order.placed", {})
    bus.drain()
    for name in (conf.queue(), conf.queue("shipping")):
        Queue.objects.create(name=name, dlq=f"{name}.dlq", dlq_messages=3)
    Queue.objects.update(measured_at=timezone.now())
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_shipping}

    shown = text(user_with("view_deadletter").get(GROUPS))

    assert f"are in {conf.queue('shipping')}.dlq" in shown
    assert f"are in {conf.queue()}.dlq" not in shown


def test_the_filter_of_the_groups_goes_along_with_every_link(admin_client, bus, letters):
    bus.put(body=b"\xff", headers={"tenant": "t1"})
    bus.put(body=b"\xfe")
    bus.drain()
    redrive([letters[1].pk], by="ada", using="default")
    response = admin_client.get(f"{GROUPS}?header.tenant=t1")
    (card,) = response.context["cards"]

    assert card.group.count == admin_client.get(card.list_url).context["count"] == 1
    _title, count, url = response.context["beside"][0]
    assert count == admin_client.get(url).context["count"]
    one = admin_client.get(card.url)
    assert ids_on(one) == [letters[1].pk]
    assert one.context["card"].group.count == 1
    shown = admin_client.get(one.context["for_all"][0].url)
    assert "header.tenant=t1" in text(shown)
    assert (shown.context["forecast"].count, shown.context["forecast"].staying) == (
        0,
        {"redriving": 1},
    )
    decided = admin_client.post(card.url, {"verb": "acknowledge"})
    assert decided.headers["Location"] == card.url


def test_more_groups_than_a_page_holds_have_a_next_page(admin_client, letters, monkeypatch):
    DeadLetter.objects.filter(pk=letters[0].pk).update(fingerprint="another")
    FailureGroup.objects.create(fingerprint="another", kind="failed", title="another one")
    monkeypatch.setattr(groups, "PAGE_SIZE", 1)

    first, second = admin_client.get(GROUPS), admin_client.get(f"{GROUPS}?page=1")

    assert "Next page" in text(first)
    assert "another one" in text(second)
    assert "Previous page" in text(second)


@pytest.mark.parametrize(
    ("verb", "status"),
    [("acknowledge", "acknowledged"), ("resolve", "resolved"), ("ignore", "ignored")],
)
def test_a_person_decides_about_a_group(admin_client, group, verb, status):
    until = timezone.now() + timedelta(days=1)
    form = {"verb": verb, "note": "we know", "until": until.strftime("%Y-%m-%dT%H:%M")}

    shown = admin_client.post(f"{GROUPS}groups/{group.pk}/", form, follow=True)

    group.refresh_from_db()
    assert (group.status, group.note, group.changed_by) == (status, "we know", "admin")
    assert "we know" in text(shown)
    assert AuditEntry.objects.get().by == "admin"


class FromReplica:
    """A router that reads the bus's tables from a replica."""

    def db_for_read(self, model, **hints):
        return "replica" if model._meta.app_label == "eventbus" else None

    def db_for_write(self, model, **hints):
        return "default"


@pytest.fixture
def replica(settings, group):
    """Let pages read by a connection that cannot write."""
    options = {"options": "-c default_transaction_read_only=on"}
    connections.settings["replica"] = {**connection.settings_dict, "OPTIONS": options}
    connections["replica"].connect()
    settings.DATABASE_ROUTERS = [f"{__name__}.FromReplica"]
    yield
    connections["replica"].close()
    del connections["replica"], connections.settings["replica"]


@pytest.mark.postgres
def test_a_decision_is_written_where_it_can_be_written(admin_client, replica, group):
    decided = admin_client.post(f"{GROUPS}groups/{group.pk}/", {"verb": "resolve"})

    assert decided.status_code == 302
    assert FailureGroup.objects.using("replica").get().status == "resolved"


def test_a_group_that_was_decided_about_is_out_of_the_way_until_it_comes_back(
    admin_client, bus, group
):
    group.resolve("ada", "deployed")
    quiet = admin_client.get(GROUPS)
    publish("order.placed", {})
    bus.drain()
    back = admin_client.get(GROUPS)

    assert (len(quiet.context["cards"]), len(quiet.context["quiet"])) == (0, 1)
    assert "1 ignored or resolved (3 dead letters)" in text(quiet)
    assert (len(back.context["cards"]), len(back.context["quiet"])) == (1, 0)
    assert "new came back" in text(back)
    one = text(admin_client.get(f"{GROUPS}groups/{group.pk}/"))
    assert "new came back resolved, by ada" in one


def test_an_ignored_group_says_until_when(admin_client, group):
    group.ignore(timezone.now().replace(year=2099, month=1, day=31, hour=12), "ada", "")

    for path in (GROUPS, f"{GROUPS}groups/{group.pk}/"):
        assert re.search(r"ignored until 2099-01-31 \d\d:\d\d", text(admin_client.get(path)))


def test_what_is_done_to_the_group_is_told_apart_from_what_is_done_to_its_dead_letters(
    admin_client, group
):
    shown = text(admin_client.get(f"{GROUPS}groups/{group.pk}/"))

    assert "For the dead letters of this group: Re-drive… Discard… Ignore until…" in shown
    assert "Ignore the group until that time" in shown


def filled_in(shown) -> dict[str, list[str]]:
    """Return what the filter form of a page sends if nothing in it is changed."""
    form = shown.context["form"]
    fields = {name: [form[name].value() or ""] for name in form.fields}
    return {**fields, "filled_in": ["yes"], "kept": [query for query, _ in shown.context["kept"]]}


@pytest.mark.parametrize(
    "query",
    [
        "group=abc&state=open",
        "type=order.placed&type=b&state=open&state=healed",
        "payload.order_id=1&payload.order_id=2&header.tenant=t1&header.x=1&state=open",
        "subscription=&state=open&ignored=no",
        "id=1,2&state=open&as_of=2026-01-31T12:00:00%2B00:00~9",
        "payload.a%3Db=1&payload.c=2&state=all",
    ],
)
def test_the_form_forgets_nothing_of_the_url(admin_client, letters, query):
    shown = admin_client.get(f"{LIST}?{query}")

    again = admin_client.get(LIST, filled_in(shown), follow=True)

    assert sorted(parse_qsl(again.request["QUERY_STRING"], keep_blank_values=True)) == sorted(
        parse_qsl(query, keep_blank_values=True)
    )


def test_what_the_form_has_no_field_for_is_seen_and_can_be_left_out(admin_client, letters):
    shown = admin_client.get(f"{LIST}?type=order.placed&type=b&state=open")

    assert 'name="kept" value="type=b" checked> <code>type=b</code>' in shown.content.decode()
    again = admin_client.get(LIST, {**filled_in(shown), "kept": []}, follow=True)
    assert again.request["QUERY_STRING"] == "type=order.placed&state=open"


@pytest.mark.parametrize("until", ["", "2001-01-01T00:00", "soon"])
def test_ignoring_takes_a_time_to_come(admin_client, group, until):
    path = f"{GROUPS}groups/{group.pk}/"

    response = admin_client.post(path, {"verb": "ignore", "until": until})

    assert response.context["form"].errors["until"]
    group.refresh_from_db()
    assert group.status == "new"


def test_a_group_is_decided_about_only_with_the_right_and_by_post(admin_client, group):
    path, client = f"{GROUPS}groups/{group.pk}/", user_with("view_deadletter")

    shown = client.get(path)

    assert client.post(path, {"verb": "resolve"}).status_code == 403
    assert "You need the permission eventbus.redrive_deadletter." in text(shown)
    admin_client.get(path, {"verb": "resolve"})
    group.refresh_from_db()
    assert group.status == "new"


def test_a_group_that_is_not_there_is_not_found(admin_client, db):
    assert admin_client.get(f"{GROUPS}groups/nothing/").status_code == 404


# The list.


def options_in(shown, name: str) -> list[str]:
    listed = re.search(
        rf'<datalist id="filter-{name}-known">(.*?)</datalist>', shown.text, re.DOTALL
    )
    assert f'list="filter-{name}-known"' in shown.text
    return re.findall(r'<option value="([^"]*)">', listed[1])


@pytest.mark.parametrize("path", [GROUPS, LIST])
def test_the_form_suggests_what_is_known(admin_client, bus, charge, path):
    bus.subscribe("invoice.filed", name="file", queue="papers")(print)
    Queue.objects.create(name="of.before")

    shown = admin_client.get(path, follow=True)

    assert options_in(shown, "queue") == sorted([conf.queue(), conf.queue("papers"), "of.before"])
    assert options_in(shown, "subscription") == ["charge", "file"]
    assert options_in(shown, "type") == ["invoice.filed"]


def test_the_form_suggests_nothing_of_queues_that_are_not_for_the_user(bus, charge, settings):
    subscribed(bus, "ship", queue="shipping")
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_shipping}

    shown = user_with("view_deadletter").get(LIST, follow=True)

    assert options_in(shown, "queue") == [conf.queue("shipping")]
    assert options_in(shown, "subscription") == ["ship"]


def test_a_filter_by_what_is_not_there_says_so(admin_client, letters):
    query = {"queue": "nowhere", "subscription": ["chrge", ""], "state": "open"}
    shown = text(admin_client.get(LIST, query))
    known = {"queue": conf.queue(), "subscription": "charge", "state": "healed"}

    assert "This project has no queue nowhere." in shown
    assert "This project has no subscription chrge." in shown
    assert shown.count("This project has no") == 2
    assert "This project has no" not in text(admin_client.get(LIST, known))
    DeadLetter.objects.update(subscription="gone")
    one = text(admin_client.get(LIST, {"subscription": "gone", "state": "open"}))
    assert "This project has no" not in one


def test_every_filter_is_in_the_url(admin_client, bus, letters):
    charge_two = letters[1]
    expected = {
        "type=order.placed": 3,
        "type=order.shipped": 0,
        f"queue={conf.queue()}": 3,
        "subscription=charge": 3,
        "error=card": 3,
        "error=cart": 0,
        "kind=failed": 3,
        "kind=undecodable": 0,
        "header.tenant=t1": 1,
        "payload.order_id=2": 1,
        "payload.order_id=9": 0,
        f"message_id={charge_two.message_id}": 1,
        "parked_after=1h": 3,
        "parked_before=1h": 0,
        "attempts_min=3": 0,
        "redriven=yes": 0,
        "edited=no": 3,
        "payload.order_id=1&payload.order_id=2": 2,
    }

    counts = {
        query: admin_client.get(f"{LIST}?{query}&state=open").context["count"] for query in expected
    }

    assert counts == expected


def test_the_form_leads_to_a_url_with_only_what_was_filled_in(admin_client, letters):
    form = {"type": "", "state": "open", "payload_name": "payload.order_id", "payload_value": "1"}
    form |= {"filled_in": "yes", "subscription": ""}

    response = admin_client.get(LIST, {**form, "header_name": "tenant", "header_value": "t1"})

    assert parse_qsl(response.headers["Location"].partition("?")[2]) == [
        ("state", "open"),
        ("header.tenant", "t1"),
        ("payload.order_id", "1"),
    ]
    shown = admin_client.get(response.headers["Location"])
    assert ids_on(shown) == [letters[1].pk]
    assert 'value="order_id"' in shown.content.decode()


def test_a_filter_that_cannot_be_read_is_said(admin_client, letters):
    shown = text(admin_client.get(f"{LIST}?parked_after=yesterday&state=open"))

    assert "write a time like" in shown


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("typ=climb.up", "typ=climb.up: this filter does not exist; did you mean 'type'."),
        ("patch={}", "this filter does not exist"),
        ("payload.order_id=", 'write a value; "" is the empty text'),
        ("payload_name=order_id", 'payload.order_id=: write a value; "" is the empty text.'),
        ("payload_value=1", "write a path in the payload"),
        ("header_name=tenant", "header.tenant=: write a value"),
        ("state=opn", "did you mean 'open'"),
        ("kind=xyz", "this value does not exist"),
        ("payload.x=NaN", "this is not a number in JSON"),
        ("payload.x=1e400", "this is not a number in JSON"),
        ("parked_after=9999-12-31T23:59:59-12:00", "this time is out of range"),
        ("parked_after=0001-01-01T00:00%2B14:00", "this time is out of range"),
    ],
)
def test_what_is_misspelt_or_half_filled_in_never_means_more(
    admin_client, letters, query, sentence
):
    listed = admin_client.get(f"{LIST}?{query}", follow=True)
    refused = [admin_client.get(f"{GROUPS}{page}/?{query}") for page in ("dry-run", "discard")]
    refused.append(admin_client.get(f"{GROUPS}export/?{query}&format=csv"))

    assert ids_on(listed) == []
    assert [each.status_code for each in refused] == [400] * 3
    for shown in (listed, *refused, admin_client.get(f"{GROUPS}?{query}")):
        assert escape(sentence) in shown.text


def test_an_empty_subscription_is_what_reached_none(admin_client, bus, letters):
    bus.put(body=b"\xff")
    bus.drain()

    assert admin_client.get(f"{LIST}?subscription=&state=open").context["count"] == 1
    assert admin_client.get(f"{DRY_RUN}?subscription=").context["forecast"].count == 1


@pytest.mark.parametrize("after", ["x~y", "9999-12-31T23:59:59-12:00~1", f"2026-01-31~{10**20}"])
def test_a_page_that_is_none_is_said(admin_client, letters, after):
    shown = admin_client.get(LIST, {"state": "open", "after": after}, follow=True)

    assert "This page does not exist." in text(shown)


# Which are meant.


@pytest.mark.parametrize("page", ["dry-run", "discard", "ignore", "restore"])
def test_all_is_meant_only_if_it_is_said(admin_client, letters, page):
    for query in ("", "page=1"):
        refused = admin_client.get(f"{GROUPS}{page}/?{query}")

        assert refused.status_code == 400
        assert "Select dead letters with a filter" in refused.text
        assert "Event bus" in refused.text
    answers = {"selection": "", **PACE, "reason": "x", "until": ""}
    assert admin_client.post(f"{GROUPS}{page}/", answers).status_code == 400
    assert admin_client.get(f"{GROUPS}{page}/?state=all").status_code == 200
    assert states() == ["open"] * 3


@pytest.mark.parametrize("page", ["dry-run", "discard", "ignore", "restore"])
def test_without_a_tick_nothing_is_meant(admin_client, letters, page):
    listed = f"{LIST}?type=order.placed&state=open"
    marker = {"back": admin_client.get(listed).context["back_query"]}

    refused = admin_client.get(f"{GROUPS}{page}/", marker, follow=True)

    assert refused.redirect_chain[-1][0] == listed
    assert "Select at least one dead letter." in text(refused)
    assert len(ids_on(refused)) == 3


def test_every_state_is_meant_by_all_of_them_whatever_else_is_said(admin_client, letters):
    redrive([letters[0].pk], by="ada", using="default")

    assert admin_client.get(f"{LIST}?state=open&state=all").context["count"] == 3


def test_only_what_is_open_is_listed_unless_another_state_is_asked_for(
    admin_client, letters, charge, bus
):
    charge.error = None
    redrive([letters[0].pk], by="ada", using="default")
    bus.drain()

    assert len(ids_on(admin_client.get(LIST, follow=True))) == 2
    assert ids_on(admin_client.get(f"{LIST}?state=healed")) == [letters[0].pk]
    assert len(ids_on(admin_client.get(f"{LIST}?state=all"))) == 3


def test_a_page_leads_to_what_is_older_without_a_number(admin_client, letters, monkeypatch):
    monkeypatch.setattr(changelist, "PAGE_SIZE", 2)

    first = admin_client.get(f"{LIST}?state=open")
    second = admin_client.get(first.context["older"])

    assert ids_on(first) + ids_on(second) == [each.pk for each in letters[::-1]]
    assert not second.context["older"]
    assert second.context["first"] == f"{LIST}?state=open"


def test_a_page_leads_back_to_what_is_newer(admin_client, bus, letters, monkeypatch):
    monkeypatch.setattr(changelist, "PAGE_SIZE", 2)
    for number in (3, 4):
        publish("order.placed", {"order_id": number})
    bus.drain()
    same = DeadLetter.objects.order_by("pk").first().parked_at
    DeadLetter.objects.update(parked_at=same)
    ids = list(DeadLetter.objects.order_by("-pk").values_list("pk", flat=True))

    first = admin_client.get(f"{LIST}?state=open")
    second = admin_client.get(first.context["older"])
    third = admin_client.get(second.context["older"])
    back = admin_client.get(third.context["newer"])
    begin = admin_client.get(back.context["newer"])

    pages = [ids_on(each) for each in (first, second, third, back, begin)]
    assert pages == [ids[:2], ids[2:4], ids[4:], ids[2:4], ids[:2]]
    assert (first.context["newer"], begin.context["newer"], begin.context["count"]) == ("", "", 5)
    assert back.context["older"] == second.context["older"]


def test_a_page_before_a_place_with_few_rows_is_the_first_page(admin_client, letters, monkeypatch):
    monkeypatch.setattr(changelist, "PAGE_SIZE", 2)
    _oldest, middle, latest = letters
    place = f"{middle.parked_at.isoformat()}~{middle.pk}"

    shown = admin_client.get(f"{LIST}?{urlencode({'state': 'open', 'before': place})}")

    assert ids_on(shown) == [latest.pk, middle.pk]


def test_the_list_has_the_queue_the_attempts_and_the_time_of_each(admin_client, letters):
    DeadLetter.objects.update(attempts=37)

    shown = admin_client.get(f"{LIST}?state=open").content.decode()

    assert f'<td data-label="Queue">{conf.queue()}</td>' in shown
    assert 'class="eventbus-number">37</td>' in shown
    assert re.search(r'<time datetime="[^"]+" title="[^"]*20\d\d[^"]*">', shown)


def test_every_link_of_a_list_has_a_name_of_its_own(admin_client, bus, letters):
    publish("order.placed", {}, key="order-42")
    bus.drain()
    plan_page = planned(admin_client, "state=open").url
    carry_out(bus)

    for path in (f"{LIST}?state=all", f"{plan_page}?outcome=failed", plan_page):
        shown = admin_client.get(path).content.decode()
        links = re.findall(r'<th scope="row"><a href=[^>]*>(.*?)</a>', shown, re.DOTALL)
        names = {re.sub(r"<[^>]*>|\s+", " ", link).strip() for link in links}
        assert len(names) == 4, path
        assert sum("order-42" in name for name in names) == 1, path
        assert all(any(each.message_id[-12:] in name for name in names) for each in letters)


def test_a_page_is_closed_to_the_list_that_it_was_opened_from(admin_client, letters):
    for path in (f"{LIST}?type=order.placed&state=open", f"{LIST}?payload.order_id=1&state=all"):
        shown = admin_client.get(path).content.decode()
        link = unescape(re.search(r'<th scope="row"><a href="([^"]*)"', shown)[1])
        assert close_of(admin_client.get(link)) == path
    assert close_of(admin_client.get(f"{GROUPS}{letters[0].pk}/change/")) == LIST


def close_of(shown) -> str:
    found = re.search(r'<a href="([^"]*)" class="closelink">', shown.content.decode())
    return unescape(found[1])


def test_numbers_are_written_for_people(admin_client, letters):
    DeadLetter.objects.bulk_create(
        DeadLetter(message_id=str(number), queue=letters[0].queue, kind="failed", body=b"{}")
        for number in range(1231)
    )

    one = admin_client.get(f"{LIST}?id={letters[0].pk}&state=open")
    many = admin_client.get(f"{LIST}?state=open")

    assert "1 match For the one match, as it is now:" in text(one)
    assert "1,234 matches For all 1,234 matches, including those on other pages" in text(many)
    assert "1,234 would be re-driven" in text(admin_client.get(f"{DRY_RUN}?state=open"))
    assert "1,234 dead letters" in text(admin_client.get(f"{GROUPS}discard/?state=open"))


def test_a_secret_cannot_be_guessed_by_filtering(letters, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDACT": ["order_id", "tenant"]}
    client = user_with("view_deadletter")

    for name in ("payload.order_id=1", "header.tenant=t1"):
        response = client.get(f"{LIST}?{name}&state=open")

        assert "is hidden from you" in text(response)
        assert ids_on(response) == []
        assert client.get(f"{DRY_RUN}?{name}").status_code == 400


def test_a_secret_in_a_list_cannot_be_guessed_by_its_place(bus, charge, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDACT": ["payload.cards.number"]}
    publish("order.placed", {"cards": [{"number": "4111", "holder": "Ada"}]})
    bus.drain()
    client = user_with("view_deadletter")

    refused = client.get(f"{LIST}?payload.cards.0.number=4111&state=open")
    found = client.get(f"{LIST}?payload.cards.0.holder=Ada&state=open")

    assert "payload.cards.0.number is hidden from you." in text(refused)
    assert ids_on(found) == [bus.letter.pk]


def only_shipping(user, verb, queue) -> bool:
    return queue.endswith("shipping")


def test_dead_letters_of_queues_that_are_not_for_the_user_are_not_shown(bus, charge, settings):
    subscribed(bus, "ship", queue="shipping")
    publish("order.placed", {})
    bus.drain()
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_shipping}
    client = user_with("view_deadletter", "redrive_deadletter")

    assert [each.group.row.subscription for each in client.get(GROUPS).context["cards"]] == ["ship"]
    assert client.get(f"{LIST}?state=open").context["count"] == 1
    assert client.get(f"{DRY_RUN}?type=order.placed").context["forecast"].count == 1
    for page in (LIST, DRY_RUN):
        shown = client.get(f"{page}?queue={conf.queue()}&state=open")
        assert f"You may not see the queue {conf.queue()}." in shown.text


def test_a_selection_stays_as_it_is_for_who_may_see_every_queue(admin_client, letters, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": lambda user, verb, queue: True}

    shown = admin_client.get(f"{DRY_RUN}?type=order.placed")

    assert "queue=" not in shown.context["selection"]


def test_who_may_see_no_queue_is_told(letters, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": lambda user, verb, queue: False}
    client = user_with("view_deadletter")

    for page in (GROUPS, f"{LIST}?state=open", f"{DRY_RUN}?state=open"):
        assert "You may not see the dead letters of any queue." in client.get(page).text


def test_lists_do_not_read_bodies(admin_client, letters, django_assert_max_num_queries):
    with django_assert_max_num_queries(80) as queries:
        admin_client.get(f"{LIST}?state=open")
        admin_client.get(GROUPS)

    read = r'SELECT [^(]*"(body|payload|traceback)"'
    assert not [each["sql"] for each in queries if re.search(read, each["sql"])]


def test_an_outcome_is_told_in_words(admin_client, bus, letters):
    redrive([letters[0].pk], by="ada", using="default")
    assert "re-driving in round 1" in text(admin_client.get(f"{LIST}?state=all"))
    bus.drain()
    assert "failed again in round 1" in text(admin_client.get(f"{LIST}?state=all"))
    redrive([letters[0].pk], by="ada", using="default")
    DeadLetter.objects.update(redriven_at=timezone.now() - timedelta(hours=2))
    mark_unanswered("default")

    shown = text(admin_client.get(f"{LIST}?state=all"))

    assert "unanswered: No outcome was reported in time." in shown


def test_what_is_ignored_says_until_when(admin_client, letters):
    until = timezone.now() + timedelta(days=1)
    DeadLetter.objects.filter(pk=letters[0].pk).update(ignored_until=until)
    words = f"open, ignored until {timezone.localtime(until):%Y-%m-%d %H:%M}"

    assert words in text(admin_client.get(f"{LIST}?state=open&ignored=yes"))
    assert words in text(admin_client.get(page_of(letters[0])))
    assert "ignored until" not in text(admin_client.get(f"{LIST}?state=open&ignored=no"))


# The dry run.


def test_the_dry_run_tells_what_would_move_and_what_would_not(admin_client, bus, letters):
    subscribed(bus, "ship", error=GiveUp("no stock"))
    publish("order.placed", {})
    bus.drain()
    redrive([letters[0].pk], by="ada", using="default")

    shown = text(admin_client.get(f"{DRY_RUN}?type=order.placed"))

    assert "4 would be re-driven" in shown
    assert "1 stays as it is: re-driving" in shown
    assert f"charge {conf.queue()} order.placed 3" in shown


def concerns_in(shown) -> list[str]:
    """The column of concerns, without its tags."""
    cells = re.findall(r'<td data-label="Concern">(.*?)</td>', shown.text)
    return [" ".join(re.sub("<[^>]+>", " ", cell).split()) for cell in cells]


def test_each_line_of_the_dry_run_has_its_concerns(admin_client, letters):
    first, second, third = letters
    rows = DeadLetter.objects.filter
    rows(pk=first.pk).update(body=b"{")
    rows(pk=second.pk).update(subscription="gone", body=b"{")
    rows(pk=third.pk).update(type="order.sent")

    shown = admin_client.get(f"{DRY_RUN}?state=open")
    patched = admin_client.post(
        DRY_RUN, {"selection": shown.context["selection"], "patch": "{}", "try": "1"}
    )

    assert sorted(concerns_in(shown)) == [
        "-", "no subscription, payload invalid: 1", "payload invalid: 1",
    ]  # fmt: skip
    assert (
        "1 no subscription: this project does not handle them, and they would be parked again"
        in text(shown)
    )
    assert sorted(concerns_in(patched)) == [
        "-", "no subscription, skipped with this patch: 1", "skipped with this patch: 1",
    ]  # fmt: skip


def test_the_time_of_a_frozen_selection_is_told_as_other_times_are(admin_client, letters):
    shown = admin_client.get(f"{DRY_RUN}?type=order.placed&as_of=2026-01-31T12:00:00%2B00:00~9")

    assert "type=order.placed, as of 2026-01-31 06:00:00" in text(shown)


def test_what_the_inbox_has_forgotten_is_said_to_run_and_runs(admin_client, bus, charge, letters):
    old, now = timezone.now() - timedelta(days=60), timezone.now()
    DeadLetter.objects.update(sent_at=old, parked_at=old)
    InboxRecord.objects.all().delete()
    InboxMark.objects.advance(now - timedelta(days=30))
    words = "older than the records of the inbox: they would run, and may have been handled already"

    assert f"3 {words}" in text(admin_client.get(f"{DRY_RUN}?state=open"))
    told = io.StringIO()
    call_command("redrive_events", "--dry-run", stdout=told)
    assert f"3 are {words}." in told.getvalue()
    charge.error = None
    planned(admin_client, "state=open")
    carry_out(bus)

    assert states() == ["healed"] * 3


def test_the_dry_run_says_how_long_it_takes_and_what_another_plan_is_at(admin_client, letters):
    planned(admin_client, f"id={letters[0].pk}", canary=1)

    shown = admin_client.get(f"{DRY_RUN}?type=order.placed")
    slow = {"selection": shown.context["selection"], **PACE, "rate": "0.01", "try": "yes"}

    assert "1 in another plan under way: the second of the two plans skips them" in text(shown)
    assert "it takes about 5m" in text(admin_client.post(DRY_RUN, slow))
    assert "it takes about 100s" in text(admin_client.post(DRY_RUN, {**slow, "limit": "1"}))
    for rate in ("nan", "1e-320", "0", "x"):
        assert "it takes about" not in text(admin_client.post(DRY_RUN, {**slow, "rate": rate}))


def test_a_get_moves_nothing(admin_client, letters):
    form = {"selection": "type=order.placed", **PACE}
    admin_client.get(DRY_RUN, form)
    admin_client.get(f"{DRY_RUN}?type=order.placed&{urlencode(PACE)}")
    planned(admin_client, "type=order.placed", canary=1)
    plan = Plan.objects.get()

    for verb in ("start", "pause", "resume", "cancel"):
        assert admin_client.get(f"{PLANS}{plan.pk}/{verb}/now/").status_code == 405

    assert states() == ["open"] * 3
    assert Plan.objects.get().state == "canary"


def test_a_plan_heals_what_was_seen_and_tells_each_outcome(admin_client, bus, charge, letters):
    charge.error = None

    made = planned(admin_client, "type=order.placed")
    carry_out(bus)
    shown = admin_client.get(made.headers["Location"])

    assert states() == ["healed"] * 3
    assert Effect.objects.count() == 3
    assert "3 of 3 settled" in text(shown)
    assert [each["name"] for each in shown.context["outcomes"]] == ["healed"] * 3
    assert {each.redriven_by for each in DeadLetter.objects.all()} == {"admin"}


def test_what_arrives_after_the_dry_run_does_not_move(admin_client, bus, charge, letters):
    shown = admin_client.get(f"{DRY_RUN}?type=order.placed")
    publish("order.placed", {})
    bus.drain()
    charge.error = None

    posted(admin_client, shown)
    carry_out(bus)

    assert sorted(states()) == ["healed", "healed", "healed", "open"]


def test_what_is_parked_after_the_list_was_shown_is_not_in_its_selection(
    admin_client, bus, letters
):
    every = admin_client.get(f"{LIST}?state=open").context["for_all"][0]
    publish("order.placed", {})
    bus.drain()

    assert admin_client.get(every.url).context["forecast"].count == 3


def test_a_dead_letter_that_failed_again_since_it_was_shown_does_not_move(
    admin_client, bus, letters
):
    shown = admin_client.get(f"{DRY_RUN}?type=order.placed")
    redrive([letters[0].pk], by="ada", using="default")
    bus.drain()

    posted(admin_client, shown)

    chosen = PlannedLetter.objects.values_list("dead_letter_id", flat=True)
    assert set(chosen) == {letters[1].pk, letters[2].pk}


def test_a_plan_says_that_it_has_not_as_many_as_the_dry_run_counted(admin_client, bus, letters):
    shown = admin_client.get(f"{DRY_RUN}?type=order.placed")
    (counted,) = re.findall(r'name="counted" value="(\d+)"', shown.content.decode())
    redrive([letters[0].pk], by="ada", using="default")
    bus.drain()

    posted(admin_client, shown, counted=counted)

    sentence = "The dry run counted 3, and the plan has 2 dead letters"
    assert sentence in text(admin_client.get(f"{PLANS}{Plan.objects.get().pk}/change/"))


@pytest.mark.parametrize(("counted", "limit"), [("3", ""), ("3", "2"), ("many", ""), ("²", "")])
def test_a_plan_that_has_as_many_as_the_dry_run_counted_says_nothing_of_it(
    admin_client, letters, counted, limit
):
    planned(admin_client, "type=order.placed", counted=counted, limit=limit)

    plan = Plan.objects.get()
    assert "The dry run counted" not in text(admin_client.get(f"{PLANS}{plan.pk}/change/"))


def test_two_admins_move_each_dead_letter_once(admin_client, bus, charge, letters):
    other = user_with("view_deadletter", "redrive_deadletter", "view_plan")
    mine, theirs = (each.get(f"{DRY_RUN}?type=order.placed") for each in (admin_client, other))
    charge.error = None

    posted(admin_client, mine)
    posted(other, theirs)
    carry_out(bus)

    assert Effect.objects.count() == 3
    assert OutboxEvent.objects.exclude(queue="").count() == 3
    outcomes = sorted(PlannedLetter.objects.values_list("state", flat=True))
    assert outcomes == ["healed"] * 3 + ["skipped"] * 3


def test_a_reason_is_needed_above_a_number(admin_client, letters, monkeypatch):
    monkeypatch.setattr(plans, "REASON_ABOVE", 2)

    refused = planned(admin_client, "type=order.placed")
    assert refused.context["form"].errors["reason"]
    assert not Plan.objects.exists()
    assert planned(admin_client, "type=order.placed", limit=2).status_code == 302
    assert planned(admin_client, "type=order.placed", reason="mended").status_code == 302


def test_a_plan_over_nothing_is_not_made(admin_client, letters):
    response = admin_client.get(f"{DRY_RUN}?type=no.such")
    refused = posted(admin_client, response)

    assert "There is nothing to re-drive." in text(response)
    assert "None of these dead letters can be re-driven" in text(refused)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate", 0),
        ("rate", "1e308"),
        ("rate", "nan"),
        ("canary", -1),
        ("canary", 10**20),
        ("in_flight", 0),
        ("in_flight", 10**11),
        ("tries", "x"),
        ("limit", "9" * 5000),
    ],
    ids=lambda each: str(each)[:20],
)
def test_a_pace_that_is_none_is_refused(admin_client, letters, name, value):
    refused = planned(admin_client, "type=order.placed", **{name: value})

    assert refused.context["form"].errors
    assert not Plan.objects.exists()


def test_a_selection_that_is_none_is_refused(admin_client, letters):
    assert admin_client.post(DRY_RUN, {"selection": "id=x", **PACE}).status_code == 400
    assert admin_client.get(f"{DRY_RUN}?id=x").status_code == 400


# Rights.


def test_a_user_without_the_right_sees_why_and_gets_403_from_a_hand_made_post(letters):
    client = user_with("view_deadletter", "change_deadletter", "delete_deadletter")
    words = "You need the permission eventbus.redrive_deadletter."

    for path in (f"{LIST}?state=open", f"{DRY_RUN}?state=open", page_of(letters[0])):
        assert words in text(client.get(path))
    response = client.post(DRY_RUN, {"selection": "type=order.placed", **PACE})

    assert response.status_code == 403
    assert words in response.text
    assert not Plan.objects.exists()


def test_who_may_re_drive_but_not_see_plans_is_led_back_to_the_list(letters):
    client = user_with("view_deadletter", "redrive_deadletter")

    followed = client.post(DRY_RUN, {"selection": "type=order.placed", **PACE}, follow=True)

    plan = Plan.objects.get()
    assert followed.request["PATH_INFO"] == LIST
    assert f"Plan {plan.pk} was started. The workers run it." in text(followed)


def test_a_group_is_named_by_its_failure_where_it_is_re_driven(admin_client, letters):
    group = letters[0].fingerprint
    name = "group=“charge ValueError: the card is broken"

    assert name in text(admin_client.get(f"{DRY_RUN}?group={group}"))
    assert name in text(admin_client.get(f"{GROUPS}discard/?group={group}"))
    assert "group=unheard-of" in text(admin_client.get(f"{DRY_RUN}?group=unheard-of"))
    admin_client.post(DRY_RUN, {"selection": f"group={group}", **PACE})
    assert name in text(admin_client.get(page_of(Plan.objects.get())))


def test_the_right_to_redrive_alone_does_not_show_dead_letters(letters):
    client = user_with("redrive_deadletter")

    for path in (GROUPS, LIST, DRY_RUN, f"{GROUPS}groups/x/"):
        assert client.get(path).status_code == 403


def test_a_post_without_a_csrf_token_is_refused(admin_user, letters):
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)

    response = client.post(DRY_RUN, {"selection": "type=order.placed", **PACE})

    assert response.status_code == 403
    assert not Plan.objects.exists()


# Plans.


@pytest.fixture
def plan(admin_client, letters) -> Plan:
    planned(admin_client, "type=order.placed", canary=1, reason="mended")
    return Plan.objects.get()


def do(client, plan, verb):
    return client.post(f"{PLANS}{plan.pk}/{verb}/now/", follow=True)


def test_a_plan_is_paused_resumed_and_cancelled(admin_client, plan):
    for verb, state in (("pause", "paused"), ("resume", "canary"), ("cancel", "cancelled")):
        do(admin_client, plan, verb)

        plan.refresh_from_db()
        assert plan.state == state
    assert "cannot be paused" in text(do(admin_client, plan, "pause"))
    assert do(admin_client, plan, "explode").status_code == 404
    assert admin_client.post(f"{PLANS}{NO_SUCH_ID}/pause/now/").status_code == 404


def test_a_plan_is_steered_only_with_the_right(plan):
    client = user_with("view_deadletter", "view_plan")

    assert do(client, plan, "cancel").status_code == 403
    assert "You need the permission" in text(client.get(f"{PLANS}{plan.pk}/change/"))
    assert Plan.objects.get().state == "canary"


def no_redrive_here(user, verb, queue) -> bool:
    return verb != "redrive"


def test_a_plan_is_steered_only_by_who_may_redrive_on_its_queues(plan, settings):
    client = user_with("view_deadletter", "redrive_deadletter", "view_plan")
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": no_redrive_here}

    assert do(client, plan, "cancel").status_code == 403
    assert "You may not do this on the queue" in text(client.get(f"{PLANS}{plan.pk}/change/"))
    assert Plan.objects.get().state == "canary"


def test_a_plan_pauses_itself_and_says_why(admin_client, bus, plan):
    carry_out(bus)

    shown = admin_client.get(f"{PLANS}{plan.pk}/change/")

    assert "Paused: Too many of the latest re-drives failed again: 1/1." in text(shown)
    assert [part.count for part in shown.context["progress"].parts] == [0, 1, 0, 0, 0, 2]
    words = [each["why"] for each in shown.context["outcomes"]]
    assert words == ["ValueError: the card is broken"]


def test_an_outcome_does_not_take_its_words_from_a_later_round(admin_client, bus, charge, plan):
    carry_out(bus)
    charge.error = ValueError("something else")
    failed = PlannedLetter.objects.get(state="failed").dead_letter_id
    redrive([failed], by="ada", using="default")
    bus.drain()

    shown = admin_client.get(f"{PLANS}{plan.pk}/change/")

    assert [each["why"] for each in shown.context["outcomes"]] == ["ValueError"]


def test_a_patched_message_that_failed_says_why(admin_client, bus, letters):
    patch = '{"order_id": 7}'
    planned(admin_client, f"id={letters[0].pk}", patch=patch, tried=patch)
    carry_out(bus)

    shown = admin_client.get(f"{PLANS}{Plan.objects.get().pk}/change/")

    words = [each["why"] for each in shown.context["outcomes"]]
    assert words == ["ValueError: the card is broken"]


def test_the_progress_of_a_plan_is_told_as_json(admin_client, bus, charge, plan):
    before = admin_client.get(f"{PLANS}{plan.pk}/progress/").json()
    charge.error = None
    carry_out(bus)
    after = admin_client.get(f"{PLANS}{plan.pk}/progress/").json()

    assert before["is_over"] is False
    assert "0 of 3 settled" in before["parts"]["progress"]
    assert "Pause" in before["parts"]["verbs"]
    assert after["is_over"] is True
    assert 'aria-valuenow="100"' in after["parts"]["progress"]
    assert "Pause" not in after["parts"]["verbs"]


def test_outcomes_are_shown_of_one_kind(admin_client, bus, plan):
    carry_out(bus)

    shown = admin_client.get(f"{PLANS}{plan.pk}/change/?outcome=pending")

    assert len(shown.context["outcomes"]) == 2
    assert "2 of 2" in text(shown)


def test_outcomes_of_a_kind_are_paged_through_to_the_last(admin_client, bus):
    rows = [
        DeadLetter(message_id=str(each), queue="q", type="a.b", body=b"{}") for each in range(120)
    ]
    DeadLetter.objects.bulk_create(rows)
    planned(admin_client, "type=a.b", reason="mended", canary=120)
    here = f"{PLANS}{Plan.objects.get().pk}/change/"
    seen, query = [], "?outcome=pending"

    for number in (50, 50, 20):
        shown = admin_client.get(f"{here}{query}")
        assert f"{number} of 120" in text(shown)
        seen += [each["letter_id"] for each in shown.context["outcomes"]]
        query = f"?outcome=pending&after={shown.context['following']}"

    assert shown.context["following"] is None
    assert sorted(seen) == sorted(DeadLetter.objects.values_list("pk", flat=True))
    assert len(admin_client.get(f"{here}?outcome=pending&after=x").context["outcomes"]) == 50


@pytest.mark.parametrize("patch", ["", '{"order_id": 7}'], ids=["as they were", "patched"])
def test_what_failed_in_a_plan_is_the_selection_of_the_next_one(
    admin_client, bus, charge, letters, patch
):
    planned(admin_client, "type=order.placed", limit=2, patch=patch, tried=patch)
    here = f"{PLANS}{Plan.objects.get().pk}/change/"
    assert "Re-drive those that failed again…" not in text(admin_client.get(here))
    carry_out(bus)

    shown = admin_client.get(here)
    assert "Re-drive those that failed again…" in text(shown)
    query = re.search(r"dry-run/\?(plan=[^\"]*)", shown.content.decode())[1]
    forecast = admin_client.get(f"{DRY_RUN}?{unescape(query)}")
    assert "2 would be re-driven" in text(forecast)

    charge.error = None
    posted(admin_client, forecast, reason="mended")
    carry_out(bus)
    assert progress(Plan.objects.latest("pk"))["healed"] == 2
    listed = admin_client.get(f"{LIST}?plan={Plan.objects.earliest('pk').pk}:failed&state=all")
    assert "2 match" in text(listed)
    assert "did you mean" in text(admin_client.get(f"{LIST}?plan=1:faild&state=all"))


def test_what_a_cancelled_plan_did_not_send_is_the_selection_of_the_next_one(
    admin_client, bus, charge, letters
):
    words = "Re-drive those that were not sent…"
    charge.error = None
    here = planned(admin_client, "type=order.placed", canary=1).url
    Plan.objects.update(paced_at=timezone.now() - timedelta(hours=1))
    step_plans("default")
    assert words not in text(admin_client.get(here))
    do(admin_client, Plan.objects.get(), "cancel")
    carry_out(bus)

    shown = admin_client.get(here)
    assert words in text(shown)
    query = re.search(r"dry-run/\?(plan=[^\"]*)", shown.content.decode())[1]
    forecast = admin_client.get(f"{DRY_RUN}?{unescape(query)}")
    assert "2 would be re-driven" in text(forecast)

    posted(admin_client, forecast, reason="the rest")
    carry_out(bus)
    assert progress(Plan.objects.latest("pk"))["healed"] == 2


def test_a_dead_letter_says_in_which_plan_its_turn_is_still_to_come(admin_client, bus, plan):
    letter = DeadLetter.objects.latest("pk")
    path = f"{GROUPS}{letter.pk}/change/"
    words = f'It is still pending in: <a href="{PLANS}{plan.pk}/change/">Plan {plan.pk}</a>'

    assert words in admin_client.get(path).content.decode()
    do(admin_client, plan, "cancel")
    carry_out(bus)
    assert "Its turn is still to come" not in text(admin_client.get(path))


def test_who_paused_a_plan_is_said_once(admin_client, plan):
    do(admin_client, plan, "pause")

    for path in (f"{PLANS}{plan.pk}/change/", "/admin/eventbus/"):
        shown = text(admin_client.get(path))
        assert "Paused by admin." in shown, path
        assert "Paused: Paused" not in shown, path
        assert "paused: Paused" not in shown, path


def test_another_plan_over_what_failed_is_closed_to_who_may_not_re_drive(
    admin_client, bus, letters
):
    planned(admin_client, "type=order.placed")
    carry_out(bus)
    client = user_with("view_deadletter", "view_plan")

    shown = client.get(f"{PLANS}{Plan.objects.get().pk}/change/").text

    button = shown.partition(">Re-drive those that failed again…</")[0].rpartition("<")[2]
    assert "disabled" in button
    assert "You need the permission eventbus.redrive_deadletter." in button
    assert "dry-run/?plan=" not in shown


def test_a_plan_that_nobody_carries_out_says_so(admin_client, bus, plan):
    words = "No relay is running. Nothing is sent until one is started."
    here = f"{PLANS}{plan.pk}/change/"
    assert words in text(admin_client.get(here))

    worker = Worker.objects.create(kind="consumer", host="a", pid=1)
    assert words in text(admin_client.get(here))
    Worker.objects.filter(pk=worker.pk).update(kind="both")
    assert words not in text(admin_client.get(here))
    Worker.objects.all().delete()
    do(admin_client, plan, "pause")
    assert words not in text(admin_client.get(here))


def test_the_plans_are_listed_and_one_that_is_none_is_not_found(admin_client, plan):
    listed = text(admin_client.get(PLANS))
    assert "mended" in listed
    assert "3 pending" in listed
    assert admin_client.get(f"{PLANS}{NO_SUCH_ID}/change/").status_code == 404
    assert admin_client.get(f"{PLANS}{NO_SUCH_ID}/progress/").status_code == 404


# Foreign content, under a strict policy.


def test_script_stays_text_on_every_page(admin_client, bus):
    subscribed(bus, error=GiveUp(SCRIPT))
    bus.put(body=b'{"note": "%s"}' % SCRIPT.encode(), headers={"tenant": SCRIPT})
    bus.drain()
    group = FailureGroup.objects.get()
    group.acknowledge("ada", SCRIPT)
    planned(admin_client, f"header.tenant={SCRIPT}", reason=SCRIPT)
    plan = Plan.objects.get()
    carry_out(bus)

    for path in (GROUPS, f"{LIST}?state=all", f"{GROUPS}groups/{group.pk}/", f"{DRY_RUN}?error={SCRIPT}",
                 f"{PLANS}{plan.pk}/change/", f"{PLANS}{plan.pk}/progress/", PLANS):  # fmt: skip
        page = admin_client.get(path).content.decode()
        assert SCRIPT not in page, path
    assert escape(SCRIPT) in admin_client.get(GROUPS).content.decode()


def test_no_page_needs_inline_script_or_style_of_ours(admin_client, group, plan):
    for path in (GROUPS, f"{LIST}?state=open", f"{GROUPS}groups/{group.pk}/", DRY_RUN,
                 f"{DRY_RUN}?state=open", f"{PLANS}{plan.pk}/change/"):  # fmt: skip
        page = admin_client.get(path).content.decode()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)", page)
