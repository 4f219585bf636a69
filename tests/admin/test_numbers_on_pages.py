"""Numbers that a browser reads are the same in every language; a comma would break them."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import pytest

from django_eventbus.models import DeadLetter, Plan, PlannedLetter
from tests.admin.test_languages import lists, pages, verbs
from tests.support.readers import BASE
from tests.support.readers import reader as reader
from tests.support.story import tell

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(300)]

ATTRIBUTES = (
    "x", "y", "x1", "x2", "y1", "y2", "width", "height", "rows", "cols", "min", "max", "maxlength",
    "tabindex", "aria-valuemin", "aria-valuemax", "aria-valuenow",
)  # fmt: skip
READ_BY_BROWSERS = re.compile(rf' ({"|".join(ATTRIBUTES)})="([^"]*)"')
NUMBER = re.compile(r"-?\d+(\.\d+)?(rem|px)?")
GROUPED = re.compile(r"(?<![\w.-])\d{1,3}(?:[.,\u00a0]\d{3})+(?![\w.-])")
ADDRESSES = re.compile(r'(?:href|action|formaction|value)="([^"]*)"')
#: An id that is written with a separator where numbers are for people.
LARGE = 4_321_000


def everywhere() -> list[str]:
    letter = DeadLetter.objects.filter(state="open").exclude(subscription="").latest("pk")
    plan = Plan.objects.filter(note="failing").latest("pk")
    planned = {"dead_letter_id": letter.pk, "state": "failed", "round": 0}
    PlannedLetter.objects.create(plan=copied(plan), **planned)
    copied(letter, message_id="large")
    own = (f"deadletter/{LARGE}/change/", f"deadletter/{LARGE}/edit/", f"plan/{LARGE}/change/")
    return [*lists(), *pages(), *verbs(), *own, f"deadletter/dry-run/?id={LARGE}"]


def copied(row, **changes):
    """Write *row* again, with a large id."""
    row.pk, row._state.adding = LARGE, True
    for name, value in changes.items():
        setattr(row, name, value)
    row.save()
    return row


def seen(reader, path: str) -> str:
    headers = {"accept-language": reader.accepted}
    answer = reader.client.get(urljoin(f"{BASE}/", path), headers=headers, follow=True)
    assert answer.status_code == 200, path
    return answer.content.decode()


def test_numbers_for_the_browser_are_written_the_same_in_every_language(bus, reader, settings):
    settings.USE_THOUSAND_SEPARATOR = True
    tell(bus, orders=12)

    found, read = [], set()
    for path in everywhere():
        page = seen(reader, path)
        drawn = READ_BY_BROWSERS.findall(page)
        read |= {name for name, _ in drawn}
        found += [(path, name, text) for name, text in drawn if not NUMBER.fullmatch(text)]
        found += [(path, text) for text in ADDRESSES.findall(page) if GROUPED.search(text)]

    assert found == []
    assert {"x", "width", "rows", "aria-valuenow"} <= read
