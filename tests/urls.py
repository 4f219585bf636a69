"""URLs of the test project: the admin, where a process has it."""

from __future__ import annotations

from django.apps import apps
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)] if apps.is_installed("django.contrib.admin") else []
