"""The shop's page, and the admin."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from orders.views import shop

urlpatterns = [path("", shop, name="shop"), path("admin/", admin.site.urls)]
