"""Lunar Payments is down until someone fixes it in the admin."""

from django.db import migrations


def add(apps, schema_editor):
    providers = apps.get_model("billing", "PaymentProvider").objects
    providers.using(schema_editor.connection.alias).create(name="Lunar Payments", is_up=False)


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_initial")]
    operations = [migrations.RunPython(add, migrations.RunPython.noop)]
