"""What REDACT hides is in no page, no count and no order for users without the right to see it."""

from __future__ import annotations

from urllib.parse import quote_plus

import pytest
from django.urls import reverse

from django_eventbus.admin.dead_letters.export import COLUMNS
from django_eventbus.conf import conf
from django_eventbus.dead_letters.redaction import HIDDEN
from django_eventbus.dead_letters.selection import Selection
from django_eventbus.models import AuditEntry, DeadLetter, FailureGroup, OutboxEvent, Plan
from django_eventbus.redrive import plans
from django_eventbus.redrive.discards import ignore_unlocked
from tests.admin.test_admin import page_of, user_with
from tests.support.tables import table

pytestmark = pytest.mark.django_db

SECRET = "hunter-4711"
FINGERPRINTS = {"shipping": "a" * 32, "secret": "b" * 32}
ADMIN = "/admin/eventbus/"
VIEWS = (
    "view_deadletter", "view_outboxevent", "view_inboxrecord", "view_plan", "view_auditentry",
    "view_queue", "view_worker",
)  # fmt: skip


def only_shipping(user, verb, queue) -> bool:
    return queue == "shipping"


def letter(number: int, queue: str = "shipping") -> DeadLetter:
    body = f'{{"password": "{SECRET}-{number}", "order": {number}}}'.encode()
    return DeadLetter.objects.create(
        kind="failed", message_id=f"m{number}", type="order.placed", body=body, queue=queue,
        payload={"password": f"{SECRET}-{number}", "order": number}, subscription="charge",
        headers={"authorization": f"{SECRET}-{number}"}, fingerprint=FINGERPRINTS[queue],
        error_type="BankDown", error="no answer",
    )  # fmt: skip


@pytest.fixture
def letters() -> list[DeadLetter]:
    for queue in ("shipping", "secret"):
        FailureGroup.objects.create(
            fingerprint=FINGERPRINTS[queue], kind="failed", subscription="charge",
            error_type="BankDown", title=f"no answer of {queue}",
        )  # fmt: skip
    return [letter(number) for number in range(3)]


@pytest.fixture
def plan(letters) -> Plan:
    """Made by a user who may see everything, over a hidden value, with a hidden value in its patch."""
    selection = Selection.of([("payload.password", f"{SECRET}-1"), ("state", "open")])
    patch = {"password": f"{SECRET}-new", "currency": "EUR"}
    made = plans.make_plan(selection, by="ada", reason="mended", using="default", patch=patch)
    return plans.start(made.pk, by="ada", using="default")


@pytest.fixture
def outbox(letters) -> OutboxEvent:
    return OutboxEvent.objects.create(
        message_id="m1", type="order.placed", body=bytes(letters[1].body), state="failed",
        headers={"authorization": f"{SECRET}-1"},
    )  # fmt: skip


def pages(letters, plan, outbox) -> list[str]:
    lists = [f"{ADMIN}{view.removeprefix('view_')}/" for view in VIEWS]
    rows = [page_of(row) for row in (*letters, plan, outbox, *AuditEntry.objects.all())]
    query = f"plan={plan.pk}&state=all"
    return [
        ADMIN, *lists, *rows,
        f"{ADMIN}deadletter/list/?{query}",
        f"{ADMIN}deadletter/dry-run/?{query}",
        f"{ADMIN}deadletter/discard/?{query}",
        f"{ADMIN}deadletter/export/?{query}&format=csv",
        f"{ADMIN}deadletter/export/?{query}&format=ndjson",
        f"{ADMIN}deadletter/groups/{letters[0].fingerprint}/",
        f"{ADMIN}plan/{plan.pk}/progress/",
        f"{ADMIN}outboxevent/{outbox.pk}/history/",
    ]  # fmt: skip


def content(answer) -> str:
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return body.decode()


def test_no_page_shows_a_hidden_value(letters, plan, outbox):
    ignore_unlocked(
        Selection.of([("header.authorization", f"{SECRET}-2")]), None, by="ada", reason="",
        using="default",
    )  # fmt: skip
    client = user_with(*VIEWS)

    for path in pages(letters, plan, outbox):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert SECRET not in content(answer), path
    assert HIDDEN in content(client.get(page_of(plan)))


def test_neither_the_audit_nor_a_plan_records_a_hidden_value(plan):
    assert plan.total == 1
    assert SECRET not in plan.filter
    assert quote_plus(HIDDEN) in plan.filter
    recorded = AuditEntry.objects.values_list("filter", "outcome", "why")
    assert recorded
    assert not [each for each in recorded if SECRET in str(each)]


def test_a_plan_over_a_hidden_value_leads_to_its_dead_letters(admin_client, plan, letters):
    page = content(admin_client.get(page_of(plan)))

    assert f"?plan={plan.pk}&amp;state=all" in page
    found = admin_client.get(f"{ADMIN}deadletter/list/?plan={plan.pk}&state=all")
    assert [row.letter.pk for row in found.context["rows"]] == [letters[1].pk]


def test_who_may_see_sensitive_values_sees_the_patch(plan):
    client = user_with(*VIEWS, "see_sensitive_deadletter")

    assert f"{SECRET}-new" in content(client.get(page_of(plan)))


@table("term", [f"payload.password={SECRET}-1", f"header.authorization={SECRET}-1"])
def test_no_count_and_no_list_depends_on_a_hidden_value(term, letters):
    client = user_with(*VIEWS)
    wrong = f"{term}x"

    for page in ("list/", "", "dry-run/", "discard/", "export/"):
        right_answer, wrong_answer = (
            client.get(f"{ADMIN}deadletter/{page}?{each}&state=open&format=csv", follow=True)
            for each in (term, wrong)
        )
        assert right_answer.status_code == wrong_answer.status_code
        for answer in (right_answer, wrong_answer):
            assert "is hidden from you" in content(answer), page


@table("words", [SECRET, f"{SECRET}-1", f"{SECRET}-new", "password="])
def test_the_search_of_the_audit_finds_no_hidden_value(words, plan):
    found = user_with(*VIEWS).get(f"{ADMIN}auditentry/", {"q": words})

    hits = [each.filter for each in found.context["cl"].result_list]
    assert not hits or words == "password="


def test_no_list_is_ordered_by_a_column_that_holds_hidden_values(admin_client, outbox, plan):
    for name in ("outboxevent", "inboxrecord", "plan", "auditentry"):
        shown = admin_client.get(f"{ADMIN}{name}/").context["cl"]
        columns = shown.get_ordering_field_columns()
        possible = {
            shown.get_ordering_field(each)
            for each in shown.list_display
            if shown.sortable_by is None or each in shown.sortable_by
        }
        assert not possible & {*{"body", "headers", "payload", "patch", "filter", "outcome"}}, (
            columns
        )


def test_the_export_has_no_column_that_is_not_redacted():
    assert not {"body", "traceback"} & set(COLUMNS)


def test_a_group_of_a_hidden_queue_is_not_named(letters, settings):
    secret = letter(9, "secret")
    AuditEntry.objects.create(verb="discard", by="ada", filter=f"group={secret.fingerprint}")
    settings.EVENTBUS = {**settings.EVENTBUS, "PERMISSION": only_shipping}
    client = user_with(*VIEWS)
    title = "no answer of secret"

    for page in ("list", "dry_run", "discard", "ignore"):
        url = reverse(f"admin:eventbus_deadletter_{page}")
        answer = client.get(f"{url}?group={secret.fingerprint}&state=open")
        assert title not in content(answer), page
        mine = client.get(f"{url}?group={letters[0].fingerprint}&state=open")
        assert page == "list" or "no answer of shipping" in content(mine)
    assert title not in content(client.get(f"{ADMIN}auditentry/"))
    assert not client.get(f"{ADMIN}auditentry/", {"q": "secret"}).context["cl"].result_list
    assert conf.permission
