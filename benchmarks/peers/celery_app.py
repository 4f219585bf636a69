"""A Celery worker that does what the handler does, delivered late-acked from a quorum queue."""

from __future__ import annotations

import os
import sys

import django
from celery import Celery
from django.db import transaction

django.setup()

from benchmarks.ledger.models import Entry, Seen  # noqa: E402
from benchmarks.payloads import payload  # noqa: E402

app = Celery("benchmark", broker=os.environ["BENCHMARK_BROKER_URL"])
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    task_default_queue="bench.celery",
    task_default_queue_type="quorum",
    worker_detect_quorum_queues=True,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    broker_transport_options={"confirm_publish": True},
)


@app.task(name="enter")
def enter(event_id: str, payload: object) -> None:
    """Remember the event and leave one row, in one transaction."""
    with transaction.atomic():
        Seen.objects.create(event_id=event_id)
        Entry.objects.create(event_id=event_id)


def fill(count: int) -> None:
    """Put so many tasks into the queue."""
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(count):
            enter.apply_async((f"task-{number}", payload(number)), producer=producer)


if __name__ == "__main__":
    fill(int(sys.argv[1]))
