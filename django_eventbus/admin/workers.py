"""The pages of workers and their outages."""

from __future__ import annotations

from datetime import datetime

from django.contrib import admin
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_eventbus.admin.model_admin import PlainReadOnlyAdmin, ago
from django_eventbus.durations import rough
from django_eventbus.models import Outage, Worker


@admin.register(Worker)
class WorkerAdmin(PlainReadOnlyAdmin):
    """Relays and consumers, the last heartbeat first."""

    ordering = ("-seen_at",)
    list_display = ("process", "kind", "condition", "consumes", "started", "seen")
    list_filter = ("kind", "service")
    search_fields = ("host__startswith",)
    search_help_text = gettext_lazy("host")
    fields = (
        "kind", "service", "host", "pid", "version", "consumes", "condition", "started_at",
        "seen_at", "outage", "outage_since",
    )  # fmt: skip
    readonly_fields = ("consumes", "condition")

    @admin.display(description=gettext_lazy("process"), ordering="host")
    def process(self, worker: Worker) -> str:
        return _("%(pid)d on %(host)s") % {"pid": worker.pid, "host": worker.host}

    @admin.display(description=gettext_lazy("condition"))
    def condition(self, worker: Worker) -> str:
        now = timezone.now()
        if not worker.is_live(now):
            return _("no heartbeat")
        if worker.outage:
            age = _age(now, worker.outage_since)
            words = _("waits for a server for %(age)s (%(kind)s)")
            return words % {"age": age, "kind": worker.get_outage_display()}
        return _("finishes its work") if worker.is_stopping else _("works")

    @admin.display(description=gettext_lazy("queues"))
    def consumes(self, worker: Worker) -> str:
        return ", ".join(worker.queues) or "-"

    @admin.display(description=gettext_lazy("started"), ordering="started_at")
    def started(self, worker: Worker) -> str:
        return ago(worker.started_at)

    @admin.display(description=gettext_lazy("seen"), ordering="seen_at")
    def seen(self, worker: Worker) -> str:
        return ago(worker.seen_at)


@admin.register(Outage)
class OutageAdmin(PlainReadOnlyAdmin):
    """Outages, the latest first."""

    ordering = ("-began_at",)
    list_display = ("kind", "part", "host", "began", "lasted")
    list_filter = ("kind", "part", "began_at")
    fields = ("kind", "part", "host", "worker_id", "began_at", "ended_at", "lasted")
    readonly_fields = ("lasted",)

    @admin.display(description=gettext_lazy("began"), ordering="began_at")
    def began(self, outage: Outage) -> str:
        return ago(outage.began_at)

    @admin.display(description=gettext_lazy("lasted"))
    def lasted(self, outage: Outage) -> str:
        if outage.ended_at is None:
            return _("its end was not recorded")
        return _age(outage.ended_at, outage.began_at)


def _age(now: datetime, then: datetime | None) -> str:
    return rough((now - then).total_seconds()) if then else "-"
