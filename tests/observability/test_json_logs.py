"""Log records as JSON: one object per line, without words that may quote a payload."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import datetime, timedelta

from django_eventbus.observability.json_logs import JsonFormatter
from tests.support.spans import own_id
from tests.support.spans import spans as spans
from tests.support.tables import table

SECRET = "hunter2"


def record(text: str = "Handled it.", **values) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text, "levelname": "INFO", "name": "shop", **values})


def told(made: logging.LogRecord, **options) -> dict:
    line = JsonFormatter(**options).format(made)
    assert "\n" not in line
    return json.loads(line)


def raised() -> tuple:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(SECRET) from error
    except ValueError:
        return sys.exc_info()


def test_a_record_is_one_object_with_an_iso_time():
    line = told(record(created=0.5))

    assert line == {
        "time": "1970-01-01T00:00:00.500+00:00",
        "level": "INFO",
        "logger": "shop",
        "message": "Handled it.",
    }
    assert datetime.fromisoformat(line["time"]).utcoffset() == timedelta(0)


@table("text", ["a\nb", "a\u2028b", "\ud800", "a\x00\x1b[31m", '"}'])
def test_any_text_stays_on_its_line(text):
    line = JsonFormatter().format(record("%s", args=(text,)))

    assert line.isprintable()
    assert json.loads(line)["message"] == text


def test_the_bus_s_own_fields_are_told_and_no_others():
    line = told(record(code="EVENT_HANDLED", attempt=2, payload={"card": SECRET}))

    assert (line["code"], line["attempt"]) == ("EVENT_HANDLED", 2)
    assert SECRET not in str(line)


def test_a_project_names_fields_of_its_own():
    moment = timedelta(seconds=1)

    line = told(record(request_id="r1", took=moment), fields=["request_id", "took", "absent"])

    assert (line["request_id"], line["took"]) == ("r1", str(moment))
    assert "absent" not in line


def test_an_exception_is_told_by_types_and_places_without_its_words():
    line = told(record(exc_info=raised()))

    last, first = line["exceptions"]
    assert (last["type"], first["type"]) == ("builtins.ValueError", "builtins.KeyError")
    assert last["stack"][0].startswith(f"{__file__}:")
    assert last["stack"][0].endswith(" in raised")
    assert SECRET not in json.dumps(line)


def test_any_line_names_the_current_span_unless_it_names_another(spans):
    with spans.tracer.start_as_current_span("process") as span:
        line, other = told(record()), told(record(trace_id="t1", span_id="s1"))

    assert (line["trace_id"], line["span_id"]) == (f"{span.context.trace_id:032x}", own_id(span))
    assert (other["trace_id"], other["span_id"]) == ("t1", "s1")


def test_causes_that_go_in_a_circle_are_told_once():
    one, other = ValueError(), KeyError()
    one.__cause__, other.__cause__ = other, one

    line = told(record(exc_info=(ValueError, one, None)))

    assert [each["stack"] for each in line["exceptions"]] == [[], []]


CONFIGURED = """
import django
from django.conf import settings
settings.configure(
    SECRET_KEY="x", INSTALLED_APPS=["django_eventbus"], EVENTBUS={"SERVICE": "shop"},
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    LOGGING={
        "version": 1,
        "formatters": {"json": {"()": "django_eventbus.observability.json_logs.JsonFormatter"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {"django_eventbus": {"handlers": ["console"], "level": "DEBUG"}},
    },
)
django.setup()
from django_eventbus.outages import OutageWatch
from django_eventbus.exceptions import BrokerUnavailable
OutageWatch(None, "relay").begin(BrokerUnavailable("The broker is gone.", kind="io"))
"""


def test_it_is_named_in_logging_which_is_read_before_the_apps():
    hidden = ("DJANGO_SETTINGS_MODULE",)
    environment = {name: each for name, each in os.environ.items() if name not in hidden}

    ended = subprocess.run(
        [sys.executable, "-c", CONFIGURED],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    line = json.loads(ended.stderr)
    assert (line["code"], line["kind"]) == ("OUTAGE_BEGAN", "io")
    assert line["message"] == "Outage: The broker is gone. Waiting for it to end."
