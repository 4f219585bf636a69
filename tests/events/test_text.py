"""A sentence is stored in English and can be shown in the reader's language."""

from __future__ import annotations

import json

import pytest
from django.utils import translation

from django_eventbus.events.event import Event
from django_eventbus.events.payload import body_of
from django_eventbus.events.text import Sentence, translated
from django_eventbus.exceptions import InvalidEvent, InvalidPayload
from tests.support.tables import table

MISSING = "%(event)s: %(field)s is missing"


def test_a_sentence_is_english_text_with_its_values():
    sentence = Sentence(MISSING, event="OrderPlaced", field="total")

    with translation.override("de"):
        assert sentence == "OrderPlaced: total is missing"
        assert json.dumps([sentence]) == '["OrderPlaced: total is missing"]'


def test_a_sentence_is_translated_for_its_reader():
    with translation.override("de"):
        assert translated(Sentence(MISSING, event="OrderPlaced", field="total")) == (
            "OrderPlaced: total fehlt"
        )


@table("text", ["", "ValueError", "OrderPlaced: total is missing", "100 % sure; %(field)s"])
def test_a_text_of_others_is_shown_unchanged(text):
    with translation.override("de"):
        assert translated(text) == text


class LeafTurned(Event, type="leaf.turned", version=2):
    leaf: int


def test_what_is_wrong_with_a_payload_can_be_translated():
    with pytest.raises(InvalidPayload) as too_old:
        LeafTurned.upgrade_from(1, {})
    with pytest.raises(InvalidEvent) as not_finite:
        body_of({"leaf": float("nan")}, limit=100)

    for error in (too_old, not_finite):
        sentence = error.value.args[0]
        with translation.override("de"):
            assert translated(sentence) != str(sentence)
