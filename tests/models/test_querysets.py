"""Rows that changed alike are written together, and each gets what it was given."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_eventbus.models import DeadLetter
from django_eventbus.models.querysets import update_grouped

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]


def test_each_row_gets_its_own_values_in_a_statement_per_kind_of_change():
    rows = [DeadLetter(message_id=str(number), queue="q", body=b"") for number in range(6)]
    DeadLetter.objects.bulk_create(rows)
    for number, row in enumerate(rows):
        row.state, row.note = ("healed", "") if number % 2 else ("unknown", "silent")
        row.error = "not to be saved"

    with CaptureQueriesContext(connection) as asked:
        update_grouped(rows, ["state", "note"], "default")

    assert len(asked) == 2
    found = DeadLetter.objects.order_by("pk").values_list("state", "note", "error")
    assert list(found) == [("unknown", "silent", ""), ("healed", "", "")] * 3


def test_more_than_one_statement_takes_are_written_too():
    rows = [DeadLetter(message_id=str(number), queue="q", body=b"") for number in range(501)]
    DeadLetter.objects.bulk_create(rows)
    for row in rows:
        row.state = "healed"

    update_grouped(rows, ["state"], "default")

    assert DeadLetter.objects.filter(state="healed").count() == 501
