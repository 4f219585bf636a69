"""The settings of a test with django-celery-beat."""

from __future__ import annotations

from tests.settings import *  # noqa: F403

INSTALLED_APPS = ["django.contrib.contenttypes", "django_celery_beat", *INSTALLED_APPS]  # noqa: F405
