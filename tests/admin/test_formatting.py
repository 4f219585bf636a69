"""What came of an action is told in words; the JSON of the audit stays as it is."""

from __future__ import annotations

import pytest
from django.utils import timezone, translation

from django_eventbus.admin.formatting import result_in_words
from django_eventbus.models import AuditEntry
from tests.support.tables import table

COUNTS = {"pending": 0, "discarded": 3, "skipped": 1}


@table(
    ("language", "outcome", "words"),
    [
        ("en", COUNTS, "3 discarded, 1 skipped"),
        ("de", COUNTS, "3 verworfen, 1 übersprungen"),
        ("pt-br", COUNTS, "3 descartadas, 1 pulada"),
        ("en", {"moved": 0, "left": 0}, "nothing"),
        ("de", {"sent": 2, "left": 1}, "2 gesendet, 1 unverändert"),
        ("de", {"from": "a-1", "to": "b-2"}, "von a-1, zu b-2"),
        ("de", {"until": ""}, "wieder angezeigt"),
        ("de", {"until": "2026-01-31T12:00:00+00:00"}, "bis 2026-01-31 12:00"),
        ("pt-br", {"format": "csv"}, "como csv"),
        ("de", {"failed": "no connection"}, "nicht erledigt: no connection"),
        ("de", {"invented": 7, "healed": 1}, "1 behoben, invented: 7"),
    ],
)
def test_an_outcome_is_told_in_words_and_what_is_unknown_as_it_is(language, outcome, words):
    with translation.override(language), timezone.override("UTC"):
        assert result_in_words(outcome) == words


@pytest.mark.django_db
def test_the_page_of_the_audit_tells_what_came_of_it_in_words(admin_client):
    entry = AuditEntry.objects.create(verb="discarded", by="ada", outcome=COUNTS)

    for path in ("", f"{entry.pk}/change/"):
        page = admin_client.get(f"/admin/eventbus/auditentry/{path}").content.decode()
        assert "3 discarded, 1 skipped" in page
    assert AuditEntry.objects.get().outcome == COUNTS
