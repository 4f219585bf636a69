"""German and Brazilian Portuguese: complete, and in order."""

from __future__ import annotations

import gettext
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib import admin
from django.utils.functional import Promise

import django_eventbus
from tests.support import services
from tests.support.skipping import skipped_if_missing
from tests.support.tables import table

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


@table("language", LANGUAGES)
def test_no_translation_is_empty_and_each_has_what_is_filled_in(language):
    for key, texts in catalogue(language).items():
        assert len(texts) == len(key), key
        for text, original in zip(texts, key, strict=True):
            assert text.strip(), key
            assert sorted(PLACEHOLDER.findall(text)) == sorted(PLACEHOLDER.findall(original)), key


@table("language", LANGUAGES)
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
