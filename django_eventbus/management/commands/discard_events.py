"""Discard dead letters."""

from __future__ import annotations

import sys
from typing import Any

from django_eventbus.closing import discard_selected
from django_eventbus.dry_runs import dry_run
from django_eventbus.management.progress_bar import ProgressBar
from django_eventbus.management.selection_command import SelectionCommand, as_json, as_lines
from django_eventbus.selections import Selection


class Command(SelectionCommand):
    help = "Close dead letters for good; restore them in the admin."

    def work(self, selection: Selection, options: dict[str, Any]) -> None:
        using = options["database"]
        forecast = dry_run(selection, using=using)
        if options["dry_run"] or not forecast.count:
            self.show(as_json(forecast), as_lines(forecast), options)
            return
        count = min(forecast.count, options["limit"] or forecast.count)
        self.confirm(f"Discard {count:,} dead letters?", options)
        bar = ProgressBar(sys.stderr, count)
        done = discard_selected(
            forecast.selection,
            by=self.by(options),
            reason=options["reason"],
            using=using,
            limit=options["limit"],
            on_batch=bar.show,
        )
        bar.end()
        self.show({"discarded": done}, [f"Discarded {done:,}."], options)
