"""Somebody who reads the admin in a language, and what of a page is still English."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from html import unescape
from urllib.parse import urljoin

import pytest
from django.test import Client
from django.utils import translation

from django_eventbus.admin.formatting import short
from django_eventbus.models import DeadLetter, FailureGroup, OutboxEvent, Plan
from tests.test_translations import catalogue

BASE = "/admin/eventbus"
#: Words that are the same in every language: names of the story, of Python, and of protocols.
NAMES = frozenset((
    "ada", "admin", "grace", "otto", "shop", "shop-tests", "billing", "shipping",
    "notifications", "charge", "pack", "confirm", "weigh", "cardexpired", "paymenttimeout",
    "keyerror", "undecodable", "unmatched", "tenant", "acme", "item", "total", "address",
    "eventbus-key", "eventbus-row", "eventbus-subscription", "eventbus-version", "json",
    "ndjson", "csv", "nan", "django", "link", "navigation", "site", "start",
))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Somebody with a browser that asks for a language."""

    client: Client
    accepted: str
    #: As the directory of its catalogue is called.
    language: str
    #: Words of Django's own that this version of it has not translated yet.
    untranslated: frozenset[str] = frozenset()

    def sees(self, path: str, data: dict[str, str] | None = None, accepted: str = "") -> str:
        """Return the words of a page; with *data*, of the answer to a form."""
        headers = {"accept-language": accepted or self.accepted}
        if data is None:
            answer = self.client.get(urljoin(f"{BASE}/", path), headers=headers, follow=True)
        else:
            answer = self.client.post(f"{BASE}/{path}", data, headers=headers, follow=True)
        assert answer.status_code == 200, path
        page = words_of(answer.content.decode())
        for text in what_others_said():
            page = page.replace(text, " ")
        return page

    def left_in_english(self, *paths: str, data: dict[str, str] | None = None) -> dict[str, str]:
        """Return words that are the same in English, and none of the translation's; and where."""
        found: dict[str, str] = {}
        fine = NAMES | vocabulary(self.language) | self.untranslated
        for path in paths:
            found |= dict.fromkeys(self.alike(path, data) - fine, path)
        return found

    def alike(self, path: str, data: dict[str, str] | None = None) -> set[str]:
        """Return the words of a page that are the same in English."""
        mine, theirs = (set(words(self.sees(path, data, by))) for by in (self.accepted, "en"))
        return mine & theirs


def words_of(page: str) -> str:
    """Return what a person reads on a page, but for what others said: code, errors, payloads."""
    page = re.sub(r"<(script|style|textarea|pre|code)\b.*?</\1>", " ", page, flags=re.DOTALL)
    page = re.sub(r"<(td|dd|span)[^>]*eventbus-error.*?</\1>", " ", page, flags=re.DOTALL)
    labels = re.findall(r'(?:title|aria-label|data-label)="([^"]*)"', page)
    labels += re.findall(r'<input type="submit"[^>]* value="([^"]*)"', page)
    text = re.sub(r"<[^>]+>", " ", page)
    return re.sub(r"\s+", " ", unescape(" ".join([text, *labels])))


def what_others_said() -> list[str]:
    """Return what people and errors said, whole and as a list shows it, the longest first."""
    said = [
        *DeadLetter.objects.values_list("error", flat=True),
        *FailureGroup.objects.values_list("title", flat=True),
        *FailureGroup.objects.values_list("note", flat=True),
        *OutboxEvent.objects.values_list("error", flat=True),
        *Plan.objects.values_list("reason", flat=True),
    ]
    whole = {re.sub(r"\s+", " ", each) for each in said if each}
    return sorted({*whole, *map(short, whole)}, key=len, reverse=True)


def words(text: str) -> list[str]:
    """Return the words of *text*, without those that stand in a name, an id or a filter."""
    parts = (part.strip(".,:;()…'\"").lower() for part in text.split())
    return [part for part in parts if re.fullmatch(r"[^\W\d_]{3,}(-[^\W\d_]+)*", part)]


@cache
def vocabulary(language: str) -> set[str]:
    """Return every word of the translation: "Plan" is German too."""
    return {
        word for texts in catalogue(language).values() for text in texts for word in words(text)
    }


@pytest.fixture(params=[("de", "de"), ("pt-BR", "pt_BR")], ids=["de", "pt-br"])
def reader(request, admin_client, settings) -> Iterator[Reader]:
    locale = "django.middleware.locale.LocaleMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE[:1], locale, *settings.MIDDLEWARE[1:]]
    accepted, language = request.param
    # What a request activates would stay active for the next test.
    with translation.override("en"):
        found = Reader(client=admin_client, accepted=accepted, language=language)
        yield replace(found, untranslated=frozenset(found.alike("/admin/auth/user/")))
