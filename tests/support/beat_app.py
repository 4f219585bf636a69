"""A Celery app on the settings of a test, with the schedule that ships, run often."""

from __future__ import annotations

import os

from celery import Celery

from django_eventbus.contrib.celery import beat_schedule

app = Celery("tests", broker=os.environ["BEAT_BROKER_URL"])
app.conf.update(
    task_default_queue=os.environ["BEAT_QUEUE"],
    beat_schedule=beat_schedule(relay="1s", consume="1s", prune="1s", older_than="1h"),
    beat_max_loop_interval=0.5,
    # Nothing on the broker but the one queue, which the test deletes.
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)
