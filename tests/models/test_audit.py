"""Entries of the audit can be added and read, and nothing else."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.core import serializers
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.migrations.state import ProjectState

from django_eventbus.exceptions import AppendOnly
from django_eventbus.models import AuditEntry
from tests.support.tables import table

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]

TABLE = AuditEntry._meta.db_table


def written() -> AuditEntry:
    return AuditEntry.objects.create(verb="discard", by="ada", why="because")


def forged(**values) -> AuditEntry:
    return AuditEntry(**{"verb": "discard", "by": "nobody", **values})


def run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def append_only():
    return import_module("django_eventbus.migrations.0001_initial").Migration.operations[-1]


CHANGES = {
    "save of a new instance": lambda entry: forged(id=entry.pk).save(),
    "save_base": lambda entry: forged(id=entry.pk).save_base(raw=True),
    "forced update": lambda entry: forged(id=entry.pk).save(force_update=True),
    "some columns": lambda entry: forged(id=entry.pk).save(update_fields=["by"]),
    "upsert": lambda entry: AuditEntry.objects.bulk_create(
        [forged(id=entry.pk)], update_conflicts=True, unique_fields=["id"], update_fields=["by"]
    ),
    "bulk_update": lambda entry: AuditEntry.objects.bulk_update(
        [forged(id=entry.pk)], fields=["by"]
    ),
    "update_or_create": lambda entry: AuditEntry.objects.update_or_create(
        id=entry.pk, defaults={"by": "nobody"}
    ),
    "loaddata": lambda entry: next(
        serializers.deserialize("json", serializers.serialize("json", [forged(id=entry.pk)]))
    ).save(),
}


@table("name", CHANGES)
def test_an_entry_cannot_be_rewritten_by_any_path_of_the_orm(name):
    entry = written()

    with pytest.raises((AppendOnly, IntegrityError)), transaction.atomic():
        CHANGES[name](entry)

    assert AuditEntry.objects.get(pk=entry.pk).by == "ada"


def test_entries_can_be_added_in_bulk_and_from_a_dump():
    AuditEntry.objects.bulk_create([forged(), forged()])
    dump = serializers.serialize("json", [forged(id=4711)])
    next(serializers.deserialize("json", dump)).save()

    assert AuditEntry.objects.filter(by="nobody").count() == 3


@pytest.mark.postgres
@table("change", [f"UPDATE {TABLE} SET by = 'nobody'", f"DELETE FROM {TABLE}"])
def test_postgresql_refuses_to_change_an_entry(change):
    entry = written()

    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        run(change)

    assert AuditEntry.objects.get(pk=entry.pk).by == "ada"


@pytest.mark.postgres
@pytest.mark.django_db(transaction=True)
def test_postgresql_lets_tests_empty_the_table():
    written()
    call_command("flush", interactive=False, verbosity=0)
    assert not AuditEntry.objects.exists()

    written()
    run(f"TRUNCATE {TABLE}")
    assert not AuditEntry.objects.exists()


@pytest.mark.postgres
def test_the_migration_of_the_trigger_can_be_undone():
    written()
    state, operation = ProjectState(), append_only()
    with connection.schema_editor() as editor:
        operation.database_backwards("eventbus", editor, state, state)
    run(f"DELETE FROM {TABLE}")
    with connection.schema_editor() as editor:
        operation.database_forwards("eventbus", editor, state, state)

    assert not AuditEntry.objects.exists()
