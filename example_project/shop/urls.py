"""The shop's page, the admin, and the partner's endpoint."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from orders.views import shop
from partner.views import receive

urlpatterns = [
    path("", shop, name="shop"),
    path("admin/", admin.site.urls),
    path("partner/", receive, name="partner"),
]
