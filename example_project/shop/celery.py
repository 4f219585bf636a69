"""Celery, switched on by CELERY_BROKER_URL: a worker with beat replaces consume_events."""

from __future__ import annotations

import os

from celery import Celery
from django_eventbus.contrib.celery import beat_schedule

from shop.settings import EVENTBUS, env

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

app = Celery("shop", broker=env.str("CELERY_BROKER_URL"))
app.conf.task_default_queue = f"{EVENTBUS['NAMESPACE'] or 'shop'}.celery"
app.conf.broker_connection_retry_on_startup = True
app.conf.beat_schedule = beat_schedule(relay="1s", consume="1s", older_than="7d")
