"""A real Celery worker and beat, over RabbitMQ, in processes of their own."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.utils import timezone

from django_eventbus import publish, publish_many
from django_eventbus.events.message import uuid7
from django_eventbus.models import OutboxEvent
from tests.shop.models import Effect
from tests.support import services
from tests.support.helpers import eventually
from tests.support.own_broker import ONE_WORKER
from tests.support.processes import ROOT
from tests.support.skipping import skipped_if_missing

pytest.importorskip("celery")
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.rabbitmq]

WORKER = ("--concurrency=2", "--without-gossip", "--without-mingle", "--without-heartbeat")
#: Shown by a process without a LOGGING of its own, each line once.
SEEN = {"EVENT_PUBLISHED": "ERROR", "EVENT_REPEATED": "ERROR"}


class Celery:
    """Start workers and beats on one queue of RabbitMQ."""

    def __init__(self, manage, amqp, tmp_path: Path):
        self.manage = manage
        self.amqp = amqp
        self.directory = tmp_path
        self.queue = f"beat-{uuid7()}"
        self.python = sys.executable
        self.environment = {
            **amqp.with_settings(LOG_LEVELS=SEEN),
            "BEAT_BROKER_URL": amqp.url,
            "BEAT_QUEUE": self.queue,
        }
        self.beats = 0

    def __call__(self, *arguments: object):
        program = (self.python, "-m", "celery", "-A", "tests.support.beat_app")
        return self.manage(*arguments, env=self.environment, program=program, is_measured=False)

    def worker(self):
        return self("worker", "--loglevel=INFO", *WORKER)

    def beat(self, *options: str):
        self.beats += 1
        schedule = self.directory / f"schedule-{self.beats}"
        return self("beat", "--loglevel=INFO", "--pidfile=", f"--schedule={schedule}", *options)

    def delete_queue(self) -> None:
        with self.amqp.channel() as channel:
            channel.queue_delete(self.queue)
            channel.exchange_delete(self.queue)


@pytest.fixture
def celery(manage, amqp, tmp_path):
    celery = Celery(manage, amqp, tmp_path)
    yield celery
    for process in manage.processes:
        process.kill()
    celery.delete_queue()


def effects() -> int:
    return Effect.objects.filter(subscription="shop.count").count()


def test_a_worker_and_a_beat_relay_consume_and_prune(celery):
    publish("count.old")
    OutboxEvent.objects.update(state="published", published_at=timezone.now() - timedelta(hours=2))
    worker = celery.worker()
    celery.beat()
    publish_many([("count.one", {})] * 10)

    eventually(lambda: effects() == 10, timeout=60, message=lambda: worker.output)
    eventually(lambda: not OutboxEvent.objects.filter(type="count.old").exists(), timeout=60)

    assert set(OutboxEvent.objects.values_list("state", flat=True)) == {"published"}
    worker.terminate()
    assert worker.wait() == 0


def test_a_second_beat_beside_it_changes_nothing(celery):
    worker = celery.worker()
    beats = [celery.beat(), celery.beat()]
    for beat in beats:
        beat.wait_for("Sending due task eventbus-relay", timeout=60)

    for _ in range(5):
        publish_many([("count.one", {})] * 10)
    eventually(lambda: effects() == 50, timeout=60, message=lambda: worker.output)
    sent = [turns_of(beat) for beat in beats]
    eventually(lambda: all(turns_of(beat) > was for beat, was in zip(beats, sent, strict=True)))

    assert effects() == 50
    assert worker.output.count("Published count.one") == 50
    assert "Repeated" not in worker.output
    assert "Traceback" not in worker.output


def turns_of(beat) -> int:
    return beat.output.count("Sending due task eventbus-relay")


@pytest.fixture
def python_with_database_scheduler() -> str:
    """A Python that has django-celery-beat: this one, or one of an environment of its own."""
    if find_spec("django_celery_beat"):
        return sys.executable
    with skipped_if_missing():
        return services.python_with_celery_beat()


def test_the_database_scheduler_reads_the_same_schedule(
    celery, python_with_database_scheduler, tmp_path
):
    database = tmp_path / "beat.sqlite3"
    celery.python = python_with_database_scheduler
    celery.environment |= {
        "DJANGO_SETTINGS_MODULE": "tests.support.beat_settings",
        "EVENTBUS_TEST_DATABASE_URL": f"sqlite:///{database}",
    }
    django = {"env": celery.environment, "program": (celery.python, "-m", "django")}
    django["is_measured"] = False
    migrated = celery.manage.run("migrate", "--run-syncdb", **django, timeout=60)
    assert migrated.returncode == 0, migrated.output
    script = "from django_eventbus import publish; publish('count.one', {})"
    assert celery.manage.run("shell", "-c", script, **django).returncode == 0

    worker = celery.worker()
    beat = celery.beat("--scheduler=django_celery_beat.schedulers:DatabaseScheduler")

    eventually(
        lambda: rows(database, "SELECT count(*) FROM shop_effect") == [(1,)],
        timeout=60,
        message=lambda: beat.output + worker.output,
    )
    stored = rows(
        database,
        "SELECT p.task, i.every, i.period, p.kwargs FROM django_celery_beat_periodictask p"
        " JOIN django_celery_beat_intervalschedule i ON i.id = p.interval_id"
        " WHERE p.name LIKE 'eventbus-%' ORDER BY p.task",
    )
    assert [(task, every, period, json.loads(given)) for task, every, period, given in stored] == [
        ("django_eventbus.consume", 1, "seconds", {"every": 1.0}),
        ("django_eventbus.prune", 1, "seconds", {"older_than": 3600.0, "using": "default"}),
        ("django_eventbus.relay", 1, "seconds", {"using": "default", "every": 1.0}),
    ]


def rows(database: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(statement).fetchall()


@ONE_WORKER
def test_the_example_project_is_switched_to_celery_by_a_variable(manage, own_node, tmp_path):
    database = tmp_path / "shop.sqlite3"
    environment = {
        "CELERY_BROKER_URL": own_node.server.url,
        "DATABASE_URL": f"sqlite:///{database}",
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PYTHONPATH": str(ROOT / "example_project"),
    }

    def start(*program: str, **options):
        python = (sys.executable, "-m", *program)
        return manage(env=environment, program=python, is_measured=False, **options)

    assert start("django", "migrate").wait(60) == 0
    script = (
        "from orders.checkout import place; from orders.models import Order; "
        "place(Order(item='teapot', email='ada@example.com', card='good'))"
    )
    placed = start("django", "shell", "-c", script)
    assert placed.wait() == 0, placed.output
    worker = start("celery", "-A", "shop", "worker", *WORKER, "--beat", f"--schedule={tmp_path}/s")

    eventually(
        lambda: rows(database, "SELECT count(*) FROM billing_invoice") == [(1,)],
        timeout=60,
        message=lambda: worker.output,
    )
