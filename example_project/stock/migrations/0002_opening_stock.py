"""Fifty of each item, and a first line in the ledger of each."""

from django.db import migrations

OPENING = 50


def add(apps, schema_editor):
    using = schema_editor.connection.alias
    for item in ("teapot", "lantern", "compass"):
        stock = apps.get_model("stock", "StockItem").objects.using(using).create(
            item=item, left=OPENING
        )
        apps.get_model("stock", "LedgerLine").objects.using(using).create(
            stock=stock, left=OPENING, change=OPENING
        )


class Migration(migrations.Migration):
    dependencies = [("stock", "0001_initial")]
    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
