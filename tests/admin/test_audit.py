"""The screen of the audit: an entry says in words what was done, leads there, and is found."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import parse_qsl

import pytest
from django.utils import timezone

from django_eventbus.dead_letters import audit
from django_eventbus.dead_letters.groups import record_decision
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import AuditEntry, DeadLetter, FailureGroup
from django_eventbus.redrive.plans import make_plan
from tests.admin.test_admin import text, user_with

pytestmark = pytest.mark.django_db

ENTRIES = "/admin/eventbus/auditentry/"
DEAD_LETTERS = "/admin/eventbus/deadletter/"
FINGERPRINT = "f" * 32


@pytest.fixture
def group() -> FailureGroup:
    return FailureGroup.objects.create(
        fingerprint=FINGERPRINT,
        kind="failed",
        subscription="billing.charge",
        error_type="BankDown",
        title="no answer for order #",
    )


@pytest.fixture
def letter(group) -> DeadLetter:
    return DeadLetter.objects.create(
        kind="failed", message_id="m1", type="order.placed", body=b"{}", queue="q",
        subscription="billing.charge", fingerprint=FINGERPRINT,
    )  # fmt: skip


def page(client, entry: AuditEntry):
    return client.get(f"{ENTRIES}{entry.pk}/change/")


def found(client, words: str) -> list[int]:
    shown = client.get(ENTRIES, {"q": words})
    assert shown.status_code == 200
    return [each.pk for each in shown.context["cl"].result_list]


def test_a_plan_that_changes_payloads_says_so_and_by_which_patch(admin_client, letter, settings):
    settings.EVENTBUS = {**settings.EVENTBUS, "REDACT": ["card"]}
    patch = {"currency": "EUR", "card": "4111", "note": "x" * 1000}
    make_plan(Selection(), by="ada", reason="", using="default", patch=patch)

    entry = AuditEntry.objects.get()
    shown = text(page(admin_client, entry))

    assert "payloads changed by {&quot;currency&quot;: &quot;EUR&quot;" in shown
    assert "[redacted]" in shown
    assert "4111" not in str(entry.outcome)
    assert len(entry.outcome["patch"]) <= 300
    assert "payloads changed by" in text(admin_client.get(ENTRIES))


def test_a_plan_that_changes_nothing_says_nothing_of_a_patch(admin_client, letter):
    make_plan(Selection(), by="ada", reason="", using="default")

    assert AuditEntry.objects.get().outcome == {}
    assert "payloads changed" not in text(admin_client.get(ENTRIES))


def test_an_ignored_group_says_until_when(admin_client, group):
    until = timezone.now() + timedelta(days=1)
    record_decision(
        group.pk, "ignore", by="ada", note="the bank is down", until=until, using="default"
    )

    entry = AuditEntry.objects.get()

    assert entry.outcome == {"until": until.isoformat()}
    words = f"until {timezone.localtime(until):%Y-%m-%d %H:%M}"
    assert words in text(admin_client.get(ENTRIES))


def test_the_page_of_an_entry_says_the_selection_in_words_and_leads_there(admin_client, letter):
    make_plan(
        Selection.of([("group", FINGERPRINT)]), by="ada", reason="", using="default", patch={}
    )
    entry = AuditEntry.objects.get()

    shown = page(admin_client, entry)

    assert "group=“billing.charge BankDown: no answer for order #”, as of 20" in text(shown)
    assert f'href="/admin/eventbus/plan/{entry.plan_id}/change/"' in shown.text
    (query,) = re.findall(rf'href="{DEAD_LETTERS}list/\?([^"]+)"', shown.text)
    assert dict(parse_qsl(unescape(query)))["group"] == FINGERPRINT
    assert admin_client.get(f"{DEAD_LETTERS}list/?{unescape(query)}").context["count"] == 1


def test_an_entry_leads_only_where_the_reader_may_go(letter):
    make_plan(Selection(), by="ada", reason="", using="default")
    client = user_with("view_auditentry")

    for shown in (page(client, AuditEntry.objects.get()), client.get(ENTRIES)):
        assert shown.status_code == 200
        assert "/admin/eventbus/plan/" not in shown.text
        assert DEAD_LETTERS not in shown.text


@pytest.mark.parametrize("selection", ["outbox=1,2", "", "colour=red"])
def test_what_is_no_selection_of_dead_letters_leads_nowhere(admin_client, selection):
    entry = audit.record("cancel", by="ada", selection=selection, using="default")

    assert f"{DEAD_LETTERS}list/?" not in page(admin_client, entry).text


def test_the_time_of_an_entry_is_local_in_its_heading_too(admin_client):
    at = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
    entry = AuditEntry.objects.create(verb="discard", by="ada", count=1, at=at)

    with timezone.override("Asia/Tokyo"):
        assert str(entry) == "2026-02-01 08:30 ada: discard 1"


@pytest.mark.parametrize(
    "words",
    ["bank is down", "BankDown:", "BankDown: no answer", "billing.charge", FINGERPRINT, "ada"],
)
def test_an_entry_is_found_by_its_reason_and_by_what_is_shown_of_its_selection(
    admin_client, group, words
):
    until = timezone.now() + timedelta(days=1)
    record_decision(
        group.pk, "ignore", by="ada", note="The bank is down.", until=until, using="default"
    )
    audit.record("discard", by="grace", why="mended", selection="type=%C3%A4+b", using="default")

    assert found(admin_client, words) == [AuditEntry.objects.get(by="ada").pk]
    assert found(admin_client, "ä b") == [AuditEntry.objects.get(by="grace").pk]
    assert found(admin_client, "bank mended") == []
