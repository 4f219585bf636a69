"""German and Brazilian Portuguese: complete, in order, and on every page."""

from __future__ import annotations

import gettext
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from django.contrib import admin
from django.utils import translation
from django.utils.functional import Promise

import django_eventbus
from django_eventbus.models import DeadLetter, FailureGroup, OutboxEvent, Plan, Queue
from tests import services
from tests.skipping import skipped_if_missing
from tests.story import tell

PACKAGE = Path(django_eventbus.__file__).parent
LANGUAGES = ("de", "pt_BR")
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[sdr]|%%|\{\w*\}|</?\w+>")
#: A message, and its plural where it has one.
Key = tuple[str, ...]


def catalogue(language: str, root: Path = PACKAGE) -> dict[Key, list[str]]:
    """Return what a .po file has for every message."""
    text = (root / "locale" / language / "LC_MESSAGES" / "django.po").read_text()
    return dict(entry(block) for block in text.split("\n\n")[1:] if "msgid" in block)


def entry(block: str) -> tuple[Key, list[str]]:
    assert "fuzzy" not in block.partition("msgid")[0], block
    assert "#~" not in block, f"nobody says this any more: {block}"
    parts = re.findall(r'^(msg\w+)(?:\[\d\])? ((?:".*"\n?)+)', block, re.MULTILINE)
    texts = [(name, "".join(map(unquoted, lines.splitlines()))) for name, lines in parts]
    key = tuple(text for name, text in texts if name.startswith("msgid"))
    return key, [text for name, text in texts if name == "msgstr"]


def unquoted(line: str) -> str:
    return line[1:-1].replace(r"\"", '"').replace(r"\n", "\n").replace("\\\\", "\\")


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> set[Key]:
    """Return all that the package says and marks for translation."""
    with skipped_if_missing():
        services.xgettext()
    copy = tmp_path_factory.mktemp("package") / "django_eventbus"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("locale", "__pycache__"))
    (copy / "locale").mkdir()
    command = [sys.executable, "-m", "django", "makemessages", "--locale", "de"]
    subprocess.run(command, cwd=copy, check=True, capture_output=True, timeout=60)
    return set(catalogue("de", copy))


@pytest.mark.parametrize("language", LANGUAGES)
def test_everything_that_is_said_is_translated_and_nothing_else(said, language):
    translated = set(catalogue(language))

    assert said - translated == set(), "make messages, then translate these"
    assert translated - said == set(), "nobody says these any more"


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_translation_is_empty_and_each_has_what_is_filled_in(language):
    for key, texts in catalogue(language).items():
        assert len(texts) == len(key), key
        for text, original in zip(texts, key, strict=True):
            assert text.strip(), key
            assert sorted(PLACEHOLDER.findall(text)) == sorted(PLACEHOLDER.findall(original)), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_compiled_is_what_was_written(language):
    compiled = PACKAGE / "locale" / language / "LC_MESSAGES" / "django.mo"
    with compiled.open("rb") as file:
        translations = gettext.GNUTranslations(file)

    for key, texts in catalogue(language).items():
        if len(key) == 1:
            assert translations.gettext(key[0]) == texts[0]
        else:
            assert [translations.ngettext(*key, number) for number in (1, 2)] == texts


def test_templates_say_nothing_that_is_not_marked():
    marked = r"{% block (?:bodyclass|coltype) %}.*?{% endblock %}|{% blocktranslate.*?{% endblocktranslate %}|{%.*?%}|{{.*?}}"
    for file in PACKAGE.glob("templates/**/*.html"):
        page = re.sub(marked, "", file.read_text(), flags=re.DOTALL)
        said_in_tags = re.findall(r'(?:title|alt|placeholder|label|value)="([^"]*)"', page)
        text = " ".join([re.sub(r"<[^>]*>", "", page), *said_in_tags])
        allowed = {"acknowledge", "ignore", "resolve", "reopen"}
        assert set(re.findall(r"[A-Za-z]{2,}", text)) <= allowed, file.name


def test_every_column_that_the_admin_shows_has_a_name_to_translate():
    models = [model for model in admin.site._registry if model._meta.app_label == "eventbus"]
    assert len(models) > 7
    for field in (field for model in models for field in model._meta.concrete_fields):
        assert field.name == "id" or isinstance(field.verbose_name, Promise), field


def paths() -> list[str]:
    letter = DeadLetter.objects.filter(error_type="CardExpired", state="open").first()
    base = "/admin/eventbus"
    changes = (FailureGroup, OutboxEvent, Queue, Plan)
    group, row, queue, plan = (model.objects.order_by("pk").first().pk for model in changes)
    return [
        f"{base}/",
        *(f"{base}/{model}/" for model in ("deadletter", "outboxevent", "inboxrecord", "queue")),
        *(f"{base}/{model}/" for model in ("worker", "outage", "plan", "auditentry")),
        f"{base}/deadletter/groups/{group}/",
        f"{base}/deadletter/list/",
        f"{base}/deadletter/list/?attempts_min=many",
        f"{base}/deadletter/{letter.pk}/change/",
        f"{base}/deadletter/{letter.pk}/edit/",
        *(f"{base}/deadletter/{verb}/?id={letter.pk}" for verb in ("dry-run", "discard", "ignore")),
        f"{base}/outboxevent/{row}/change/",
        f"{base}/queue/{queue}/change/",
        f"{base}/plan/{plan}/change/",
    ]


def words_of(page: str) -> str:
    """Return what a person reads on a page, but for what others said: code, errors, payloads."""
    page = re.sub(r"<(script|style|textarea|pre|code)\b.*?</\1>", " ", page, flags=re.DOTALL)
    page = re.sub(r"<(td|dd|span)[^>]*eventbus-error.*?</\1>", " ", page, flags=re.DOTALL)
    labels = re.findall(r'(?:title|aria-label|data-label|value)="([^"]*)"', page)
    text = re.sub(r"<[^>]+>", " ", page)
    return re.sub(r"\s+", " ", unescape(" ".join([text, *labels])))


def leftovers(language: str, words: str) -> list[str]:
    """Return the English of ours in *words*: whole texts of two words or more."""
    found = []
    for key, texts in catalogue(language).items():
        pairs = zip(key, texts, strict=True)
        for original, text in pairs:
            longest = max(PLACEHOLDER.split(original), key=len).strip(" .:,()")
            if " " in longest and longest.lower() not in text.lower():
                found += re.findall(rf"\b{re.escape(longest)}\b", words, re.IGNORECASE)
    return found


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("accepted", "language", "telling"),
    [
        ("de", "de", "Unzustellbare Nachrichten nach Fehlschlag"),
        ("pt-BR", "pt_BR", "Mensagens mortas por falha"),
    ],
)
def test_every_page_speaks_the_language_of_its_reader(
    bus, admin_client, settings, accepted, language, telling
):
    locale = "django.middleware.locale.LocaleMiddleware"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE[:1], locale, *settings.MIDDLEWARE[1:]]
    # What workers write down is in the language of their process.
    with translation.override(accepted):
        tell(bus, orders=12)

    with translation.override("en"):
        pages = {path: read(admin_client, path, accepted) for path in paths()}

    found = {path: left for path, words in pages.items() if (left := leftovers(language, words))}
    assert found == {}
    assert telling in pages["/admin/eventbus/deadletter/"]


def read(client, path: str, accepted: str) -> str:
    page = client.get(path, headers={"accept-language": accepted}, follow=True)
    assert page.status_code == 200, path
    return words_of(page.content.decode())
