"""No page of the admin keeps the database busy for longer than a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib import admin
from django.db import connection, transaction

from django_eventbus.admin import statement_limit
from django_eventbus.admin.statement_limit import limited_statements
from django_eventbus.models import AuditEntry, OutboxEvent
from tests.admin.test_admin import page_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

WORDS = "The database did not answer within"


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch) -> None:
    monkeypatch.setattr(statement_limit, "SECONDS", 0.2)


@contextmanager
def locked(*models) -> Iterator[None]:
    """Let every query of the tables of *models* wait."""
    other = connection.copy()
    try:
        with transaction_of(other) as cursor:
            for model in models:
                cursor.execute(f"LOCK TABLE {model._meta.db_table} IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        other.close()


@contextmanager
def transaction_of(other) -> Iterator:
    with other.cursor() as cursor:
        cursor.execute("BEGIN")
        yield cursor
        cursor.execute("ROLLBACK")


def limit() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return cursor.fetchone()[0]


def models() -> list[type]:
    return [each for each in admin.site._registry if each._meta.app_label == "eventbus"]


def test_every_list_answers_with_a_page_that_says_that_it_took_too_long(admin_client):
    for model in models():
        with locked(model):
            answer = admin_client.get(f"/admin/eventbus/{model._meta.model_name}/")

        assert answer.status_code == 503, model
        assert WORDS in answer.content.decode()


def test_the_page_of_a_row_and_a_form_are_limited_too(admin_client):
    row = OutboxEvent.objects.create(message_id="m", type="a", body=b"{}", state="failed")

    with locked(AuditEntry):
        url = page_of(row).replace("change", "publish_again")
        answer = admin_client.post(url, {"selection": f"{row.pk}_failed"})

    assert answer.status_code == 503
    assert WORDS in answer.content.decode()
    row.refresh_from_db()
    assert row.state == "failed"


def test_the_dashboard_says_that_it_took_too_long(admin_client):
    with locked(OutboxEvent):
        answer = admin_client.get("/admin/eventbus/")

    assert answer.status_code == 200
    assert WORDS in answer.content.decode()


def test_the_limit_ends_with_the_page(admin_client):
    before = limit()

    admin_client.get("/admin/eventbus/outboxevent/")

    assert limit() == before
    with transaction.atomic():
        admin_client.get("/admin/eventbus/outboxevent/")
        assert limit() == before


def test_a_transaction_of_the_project_survives_a_page_that_took_too_long(admin_client):
    with locked(OutboxEvent), transaction.atomic():
        answer = admin_client.get("/admin/eventbus/outboxevent/")

        assert answer.status_code == 503
        assert limit() == "0"
        assert not AuditEntry.objects.exists()


def test_the_limit_holds_in_every_transaction_of_a_page():
    seen = []
    with limited_statements():
        seen.append(limit())
        with transaction.atomic():
            seen.append(limit())
            with transaction.atomic():
                seen.append(limit())
        with transaction.atomic():
            seen.append(limit())
            transaction.set_rollback(True)
        seen.append(limit())

    assert seen == ["200ms"] * 5


def test_a_shorter_limit_of_the_project_stays(admin_client):
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '100ms'")
    try:
        with limited_statements():
            assert limit() == "100ms"
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET statement_timeout")
