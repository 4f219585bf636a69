import django.db.models.deletion
import django.utils.timezone
import django_eventbus.events.message
import django_eventbus.models.lookups
import django_eventbus.models.monitoring
from django.db import migrations, models

APPEND_ONLY = """
CREATE FUNCTION eventbus_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'The audit is append-only: an entry cannot be changed or deleted.'
        USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER eventbus_audit_append_only BEFORE UPDATE OR DELETE ON eventbus_auditentry
    FOR EACH ROW EXECUTE FUNCTION eventbus_refuse_change();
"""
NOT_APPEND_ONLY = """
DROP TRIGGER eventbus_audit_append_only ON eventbus_auditentry;
DROP FUNCTION eventbus_refuse_change();
"""


class PostgresSQL(migrations.RunSQL):
    """SQL for PostgreSQL; nothing on other databases."""

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor == "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor == "postgresql":
            super().database_backwards(app_label, schema_editor, from_state, to_state)


class Migration(migrations.Migration):

    initial = True

    dependencies = [
    ]

    operations = [
        migrations.CreateModel(
            name='FailureGroup',
            fields=[
                ('fingerprint', models.CharField(max_length=64, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=20)),
                ('subscription', models.CharField(blank=True, max_length=255)),
                ('error_type', models.CharField(blank=True, max_length=255)),
                ('place', models.CharField(blank=True, max_length=255)),
                ('title', models.TextField(blank=True)),
                ('status', models.CharField(choices=[('new', 'new'), ('acknowledged', 'acknowledged'), ('ignored', 'ignored'), ('resolved', 'resolved')], default='new', max_length=12)),
                ('ignored_until', models.DateTimeField(blank=True, null=True)),
                ('note', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('changed_at', models.DateTimeField(blank=True, null=True)),
                ('changed_by', models.CharField(blank=True, max_length=255)),
            ],
            options={
                'verbose_name': 'failure group',
                'verbose_name_plural': 'failure groups',
            },
        ),
        migrations.CreateModel(
            name='InboxMark',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('forgets_before', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Queue',
            fields=[
                ('name', models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name='name')),
                ('service', models.CharField(max_length=255, verbose_name='service')),
                ('messages', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='messages')),
                ('consumers', models.PositiveIntegerField(blank=True, null=True, verbose_name='consumers')),
                ('tiers', models.JSONField(blank=True, default=dict, verbose_name='tiers')),
                ('dlq', models.CharField(blank=True, max_length=255, verbose_name='dlq')),
                ('dlq_messages', models.PositiveBigIntegerField(blank=True, null=True, verbose_name='dlq messages')),
                ('is_collected', models.BooleanField(default=False, verbose_name='is collected')),
                ('measured_at', models.DateTimeField(blank=True, null=True, verbose_name='measured at')),
                ('trouble', models.CharField(blank=True, max_length=255, verbose_name='trouble')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created at')),
            ],
            options={
                'verbose_name': 'queue',
                'verbose_name_plural': 'queues',
            },
        ),
        migrations.CreateModel(
            name='RelayLease',
            fields=[
                ('id', models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('holder', models.UUIDField()),
                ('expires_at', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='Attempt',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subscription', models.CharField(max_length=255)),
                ('message_id', models.CharField(max_length=255)),
                ('round', models.PositiveIntegerField()),
                ('attempt', models.PositiveIntegerField()),
                ('started_at', models.DateTimeField()),
                ('duration', models.FloatField()),
                ('host', models.CharField(max_length=255)),
                ('tier', models.CharField(blank=True, max_length=20)),
                ('error_type', models.CharField(max_length=255)),
                ('error', models.TextField(blank=True)),
                ('traceback', models.TextField(blank=True)),
            ],
            options={
                'verbose_name': 'attempt',
                'verbose_name_plural': 'attempts',
                'indexes': [models.Index(fields=['message_id', 'subscription'], name='eventbus_attempt_message')],
            },
        ),
        migrations.CreateModel(
            name='AuditEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='at')),
                ('by', models.CharField(blank=True, max_length=255, verbose_name='by')),
                ('verb', models.CharField(choices=[('discard', 'discard'), ('discarded', 'discarded'), ('restore', 'restore'), ('restored', 'restored'), ('ignore', 'ignore'), ('redrive', 're-drive'), ('redrove', 're-driven'), ('edit and re-drive', 'edit and re-drive'), ('plan re-drive', 'plan re-drive'), ('start plan', 'start the plan'), ('pause plan', 'pause the plan'), ('resume plan', 'resume the plan'), ('cancel plan', 'cancel the plan'), ('plan paused', 'plan paused by itself'), ('plan ended', 'plan ended'), ('acknowledge group', 'acknowledge the group'), ('ignore group', 'ignore the group'), ('resolve group', 'resolve the group'), ('reopen group', 'mark the group as new'), ('peek DLQ', 'read the DLQ'), ('redrive DLQ', 're-drive from the DLQ'), ('redrove DLQ', 're-driven from the DLQ'), ('publish again', 'publish again'), ('cancel', 'cancel the event'), ('export', 'export')], max_length=30, verbose_name='verb')),
                ('why', models.TextField(blank=True, verbose_name='why')),
                ('note', models.CharField(blank=True, choices=[('paused', 'Paused by %(detail)s.'), ('cancelled', 'Cancelled by %(detail)s.'), ('canary_done', 'The canary of %(detail)s is done. Check its result, then resume or cancel the plan.'), ('failing', 'Too many of the latest re-drives failed again: %(detail)s.'), ('error', 'The plan cannot continue: %(detail)s. The log of the worker has the details.')], max_length=20, verbose_name='note')),
                ('note_detail', models.CharField(blank=True, max_length=255, verbose_name='detail of the note')),
                ('filter', models.TextField(blank=True, verbose_name='filter')),
                ('count', models.PositiveIntegerField(default=0, verbose_name='count')),
                ('plan_id', models.BigIntegerField(blank=True, null=True, verbose_name='plan id')),
                ('outcome', models.JSONField(blank=True, default=dict, verbose_name='outcome')),
            ],
            options={
                'verbose_name': 'audit entry',
                'verbose_name_plural': 'audit',
                'indexes': [models.Index(fields=['-at'], name='eventbus_audit_at'), models.Index(fields=['plan_id'], name='eventbus_audit_plan')],
            },
        ),
        migrations.CreateModel(
            name='Binding',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('exchange', models.CharField(max_length=255)),
                ('queue', models.CharField(max_length=255)),
                ('pattern', models.CharField(max_length=255)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('exchange', 'queue', 'pattern'), name='eventbus_binding_once')],
            },
        ),
        migrations.CreateModel(
            name='BrokerRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('peek', 'read the DLQ'), ('redrive', 're-drive from the DLQ')], max_length=10)),
                ('state', models.CharField(choices=[('submitted', 'submitted'), ('running', 'running'), ('done', 'done'), ('failed', 'failed'), ('abandoned', 'abandoned')], default='submitted', max_length=10)),
                ('service', models.CharField(max_length=255)),
                ('queue', models.CharField(max_length=255)),
                ('limit', models.PositiveIntegerField()),
                ('reason', models.TextField(blank=True)),
                ('submitted_by', models.CharField(max_length=255)),
                ('submitted_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('worker_id', models.UUIDField(blank=True, null=True)),
                ('claimed_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('result', models.JSONField(blank=True, default=dict)),
                ('error', models.TextField(blank=True)),
            ],
            options={
                'verbose_name': 'broker request',
                'verbose_name_plural': 'broker requests',
                'indexes': [models.Index(fields=['queue', '-id'], name='eventbus_brokerrequest_queue'), models.Index(condition=models.Q(('state__in', ['submitted', 'running'])), fields=['state', 'id'], name='eventbus_brokerrequest_open')],
            },
        ),
        migrations.CreateModel(
            name='DeadLetter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('message_id', models.CharField(blank=True, max_length=255, verbose_name='message id')),
                ('type', models.CharField(blank=True, max_length=255, verbose_name='type')),
                ('body', models.BinaryField(verbose_name='body')),
                ('content_type', models.CharField(blank=True, default='application/json', max_length=255, verbose_name='content type')),
                ('source', models.CharField(blank=True, max_length=255, verbose_name='source')),
                ('sent_at', models.DateTimeField(blank=True, null=True, verbose_name='sent at')),
                ('correlation_id', models.CharField(blank=True, max_length=255, verbose_name='correlation id')),
                ('headers', models.JSONField(blank=True, default=dict, verbose_name='headers')),
                ('exchange', models.CharField(blank=True, max_length=255, verbose_name='exchange')),
                ('routing_key', models.CharField(blank=True, max_length=255, verbose_name='routing key')),
                ('subscription', models.CharField(blank=True, max_length=255, verbose_name='subscription')),
                ('queue', models.CharField(max_length=255, verbose_name='queue')),
                ('variant', models.CharField(blank=True, max_length=64, verbose_name='variant')),
                ('key', models.CharField(blank=True, max_length=255, verbose_name='key')),
                ('state', models.CharField(choices=[('open', 'open'), ('redriving', 're-driving'), ('healed', 'healed'), ('unknown', 'unanswered'), ('discarded', 'discarded'), ('replaced', 'replaced')], default='open', max_length=10, verbose_name='state')),
                ('kind', models.CharField(choices=[('failed', 'failed'), ('given_up', 'given up'), ('undecodable', 'undecodable'), ('invalid', 'invalid payload'), ('unmatched', 'unmatched'), ('too_old', 'too old'), ('too_early', 'too early'), ('start_limit', 'start limit'), ('held', 'held'), ('unrecorded', 'could not be recorded'), ('delivery_limit', 'delivery limit'), ('expired', 'expired'), ('maxlen', 'queue too long'), ('rejected', 'rejected'), ('foreign', 'put there by others')], max_length=20, verbose_name='kind')),
                ('round', models.PositiveIntegerField(default=0, verbose_name='round')),
                ('attempts', models.PositiveIntegerField(default=1, verbose_name='attempts')),
                ('error_type', models.CharField(blank=True, max_length=255, verbose_name='error type')),
                ('error', models.TextField(blank=True, verbose_name='error')),
                ('traceback', models.TextField(blank=True, verbose_name='traceback')),
                ('fingerprint', models.CharField(max_length=64, verbose_name='fingerprint')),
                ('payload', models.JSONField(blank=True, null=True, verbose_name='payload')),
                ('host', models.CharField(blank=True, max_length=255, verbose_name='host')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created at')),
                ('parked_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='parked at')),
                ('parked_xid', models.BigIntegerField(default=0, verbose_name='parking transaction')),
                ('redriven_at', models.DateTimeField(blank=True, null=True, verbose_name='redriven at')),
                ('redriven_by', models.CharField(blank=True, max_length=255, verbose_name='redriven by')),
                ('closed_at', models.DateTimeField(blank=True, null=True, verbose_name='closed at')),
                ('closed_by', models.CharField(blank=True, max_length=255, verbose_name='closed by')),
                ('note', models.TextField(blank=True, verbose_name='note')),
                ('unanswered', models.CharField(blank=True, choices=[('unsent', 'The message did not reach its queue.'), ('timeout', 'No outcome was reported in time.')], max_length=10, verbose_name='unanswered because')),
                ('ignored_until', models.DateTimeField(blank=True, null=True, verbose_name='ignored until')),
                ('replaced_by', models.CharField(blank=True, max_length=255, verbose_name='replaced by')),
                ('edited_from', models.CharField(blank=True, max_length=255, verbose_name='edited from')),
            ],
            options={
                'verbose_name': 'dead letter',
                'verbose_name_plural': 'dead letters',
                'permissions': (('redrive_deadletter', 'Can re-drive dead letters'), ('discard_deadletter', 'Can discard dead letters'), ('edit_deadletter', 'Can edit and re-drive dead letters'), ('see_sensitive_deadletter', 'Can see sensitive values of dead letters')),
                'indexes': [models.Index(fields=['message_id'], name='eventbus_dead_letter_message', opclasses=['varchar_pattern_ops']), models.Index(fields=['state', 'parked_at', 'id', 'queue', 'subscription', 'type', 'parked_xid'], name='eventbus_dead_letter_state'), models.Index(fields=['state', 'fingerprint', 'parked_at', 'round'], name='eventbus_dead_letter_group'), models.Index(fields=['fingerprint', 'created_at'], name='eventbus_dead_letter_trend'), models.Index(condition=models.Q(('ignored_until__isnull', False)), fields=['ignored_until'], name='eventbus_dead_letter_ignored'), models.Index(condition=models.Q(('state__in', ['open', 'redriving', 'unknown'])), fields=['subscription', 'key', 'id'], name='eventbus_dead_letter_key'), django_eventbus.models.lookups.JsonIndex(fields=['payload'], name='eventbus_dead_letter_payload', opclasses=['jsonb_path_ops']), django_eventbus.models.lookups.JsonIndex(fields=['headers'], name='eventbus_dead_letter_headers', opclasses=['jsonb_path_ops'])],
                'constraints': [models.UniqueConstraint(fields=('subscription', 'queue', 'message_id', 'variant'), name='eventbus_dead_letter_once')],
            },
        ),
        migrations.CreateModel(
            name='InboxRecord',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subscription', models.CharField(max_length=255, verbose_name='subscription')),
                ('message_id', models.CharField(max_length=255, verbose_name='message id')),
                ('queue', models.CharField(max_length=255, verbose_name='queue')),
                ('type', models.CharField(max_length=255, verbose_name='type')),
                ('source', models.CharField(blank=True, max_length=255, verbose_name='source')),
                ('sent_at', models.DateTimeField(blank=True, null=True, verbose_name='sent at')),
                ('state', models.CharField(choices=[('started', 'started'), ('retrying', 'retrying'), ('deferred', 'deferred'), ('handled', 'handled'), ('skipped', 'skipped'), ('parked', 'parked')], max_length=10, verbose_name='state')),
                ('round', models.PositiveIntegerField(default=0, verbose_name='round')),
                ('attempt', models.PositiveIntegerField(default=1, verbose_name='attempt')),
                ('started', models.PositiveIntegerField(default=0, verbose_name='started')),
                ('delay', models.FloatField(blank=True, null=True, verbose_name='delay')),
                ('due_at', models.DateTimeField(blank=True, null=True, verbose_name='due at')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created at')),
                ('settled_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='settled at')),
                ('error', models.TextField(blank=True, verbose_name='error')),
                ('skip_reason', models.CharField(blank=True, choices=[('discarded', 'discarded: %(detail)s'), ('replaced', 'replaced by %(detail)s')], max_length=10, verbose_name='skip reason')),
            ],
            options={
                'verbose_name': 'inbox record',
                'verbose_name_plural': 'inbox records',
                'indexes': [models.Index(fields=['message_id'], name='eventbus_inbox_message', opclasses=['varchar_pattern_ops']), models.Index(fields=['state', 'settled_at'], name='eventbus_inbox_settled')],
                'constraints': [models.UniqueConstraint(fields=('subscription', 'message_id'), name='eventbus_inbox_once')],
            },
        ),
        migrations.CreateModel(
            name='Outage',
            fields=[
                ('id', models.UUIDField(default=django_eventbus.events.message.uuid7, editable=False, primary_key=True, serialize=False, verbose_name='id')),
                ('worker_id', models.UUIDField(verbose_name='worker id')),
                ('host', models.CharField(max_length=255, verbose_name='host')),
                ('part', models.CharField(choices=[('relay', 'relay'), ('consumer', 'consumer'), ('transport', 'transport'), ('command', 'command')], max_length=40, verbose_name='part')),
                ('kind', models.CharField(choices=[('connection', 'connection'), ('channel', 'channel'), ('io', 'no answer in time'), ('setup', 'declaring queues'), ('blocked', 'blocked'), ('refused', 'refused'), ('database', 'database'), ('recording', 'recording'), ('unknown', 'unknown')], max_length=20, verbose_name='kind')),
                ('began_at', models.DateTimeField(verbose_name='began at')),
                ('ended_at', models.DateTimeField(blank=True, null=True, verbose_name='ended at')),
            ],
            options={
                'verbose_name': 'outage',
                'verbose_name_plural': 'outages',
                'indexes': [models.Index(fields=['began_at'], name='eventbus_outage_began')],
            },
        ),
        migrations.CreateModel(
            name='OutboxEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('message_id', models.CharField(blank=True, max_length=255, verbose_name='message id')),
                ('type', models.CharField(blank=True, max_length=255, verbose_name='type')),
                ('body', models.BinaryField(verbose_name='body')),
                ('content_type', models.CharField(blank=True, default='application/json', max_length=255, verbose_name='content type')),
                ('source', models.CharField(blank=True, max_length=255, verbose_name='source')),
                ('sent_at', models.DateTimeField(blank=True, null=True, verbose_name='sent at')),
                ('correlation_id', models.CharField(blank=True, max_length=255, verbose_name='correlation id')),
                ('headers', models.JSONField(blank=True, default=dict, verbose_name='headers')),
                ('exchange', models.CharField(blank=True, max_length=255, verbose_name='exchange')),
                ('routing_key', models.CharField(blank=True, max_length=255, verbose_name='routing key')),
                ('state', models.CharField(choices=[('scheduled', 'scheduled'), ('ready', 'ready'), ('published', 'published'), ('unroutable', 'unroutable'), ('failed', 'failed'), ('cancelled', 'cancelled')], default='ready', max_length=10, verbose_name='state')),
                ('version', models.PositiveIntegerField(default=1, verbose_name='version')),
                ('queue', models.CharField(blank=True, max_length=255, verbose_name='queue')),
                ('subscription', models.CharField(blank=True, max_length=255, verbose_name='subscription')),
                ('key', models.CharField(blank=True, max_length=255, verbose_name='key')),
                ('shard', models.PositiveSmallIntegerField(default=0, verbose_name='shard')),
                ('causation_id', models.CharField(blank=True, max_length=255, verbose_name='causation id')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created at')),
                ('due_at', models.DateTimeField(blank=True, null=True, verbose_name='due at')),
                ('published_at', models.DateTimeField(blank=True, null=True, verbose_name='published at')),
                ('error', models.TextField(blank=True, verbose_name='error')),
            ],
            options={
                'verbose_name': 'outbox event',
                'verbose_name_plural': 'outbox events',
                'permissions': (('publish_again_outboxevent', 'Can publish outbox events again'), ('cancel_outboxevent', 'Can cancel scheduled outbox events')),
                'indexes': [models.Index(fields=['message_id'], name='eventbus_outbox_message', opclasses=['varchar_pattern_ops']), models.Index(condition=models.Q(('causation_id', ''), _negated=True), fields=['causation_id'], name='eventbus_outbox_caused'), models.Index(condition=models.Q(('state', 'ready')), fields=['shard', 'id'], name='eventbus_outbox_ready'), models.Index(condition=models.Q(('state', 'scheduled')), fields=['due_at'], name='eventbus_outbox_due'), models.Index(condition=models.Q(('state__in', ['unroutable', 'failed'])), fields=['state', 'id'], name='eventbus_outbox_stuck')],
            },
        ),
        migrations.CreateModel(
            name='Plan',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('action', models.CharField(choices=[('redrive', 're-drive'), ('discard', 'discard'), ('restore', 'restore')], default='redrive', max_length=10, verbose_name='action')),
                ('state', models.CharField(choices=[('planned', 'planned'), ('canary', 'canary'), ('running', 'running'), ('paused', 'paused'), ('done', 'done'), ('cancelled', 'cancelled')], default='planned', max_length=10, verbose_name='state')),
                ('filter', models.TextField(blank=True, verbose_name='filter')),
                ('queues', models.JSONField(blank=True, default=list, verbose_name='queues')),
                ('reason', models.TextField(blank=True, verbose_name='reason')),
                ('canary', models.PositiveIntegerField(default=0, verbose_name='canary')),
                ('rate', models.FloatField(blank=True, null=True, verbose_name='rate')),
                ('in_flight', models.PositiveIntegerField(verbose_name='in flight')),
                ('fail_percent', models.PositiveSmallIntegerField(verbose_name='fail percent')),
                ('tries', models.PositiveIntegerField(default=1, verbose_name='tries')),
                ('patch', models.JSONField(blank=True, null=True, verbose_name='patch')),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='created at')),
                ('created_by', models.CharField(blank=True, max_length=255, verbose_name='created by')),
                ('started_at', models.DateTimeField(blank=True, null=True, verbose_name='started at')),
                ('resumed_at', models.DateTimeField(blank=True, null=True, verbose_name='resumed at')),
                ('paced_at', models.DateTimeField(blank=True, null=True, verbose_name='paced at')),
                ('ended_at', models.DateTimeField(blank=True, null=True, verbose_name='ended at')),
                ('total', models.PositiveIntegerField(default=0, verbose_name='dead letters')),
                ('counts', models.JSONField(blank=True, default=dict, verbose_name='outcomes')),
                ('note', models.CharField(blank=True, choices=[('paused', 'Paused by %(detail)s.'), ('cancelled', 'Cancelled by %(detail)s.'), ('canary_done', 'The canary of %(detail)s is done. Check its result, then resume or cancel the plan.'), ('failing', 'Too many of the latest re-drives failed again: %(detail)s.'), ('error', 'The plan cannot continue: %(detail)s. The log of the worker has the details.')], max_length=20, verbose_name='note')),
                ('note_detail', models.CharField(blank=True, max_length=255, verbose_name='detail of the note')),
            ],
            options={
                'verbose_name': 'plan',
                'verbose_name_plural': 'plans',
                'indexes': [models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['id'], name='eventbus_plan_under_way')],
            },
        ),
        migrations.CreateModel(
            name='QueuedMessage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('message_id', models.CharField(blank=True, max_length=255, verbose_name='message id')),
                ('type', models.CharField(blank=True, max_length=255, verbose_name='type')),
                ('body', models.BinaryField(verbose_name='body')),
                ('content_type', models.CharField(blank=True, default='application/json', max_length=255, verbose_name='content type')),
                ('source', models.CharField(blank=True, max_length=255, verbose_name='source')),
                ('sent_at', models.DateTimeField(blank=True, null=True, verbose_name='sent at')),
                ('correlation_id', models.CharField(blank=True, max_length=255, verbose_name='correlation id')),
                ('headers', models.JSONField(blank=True, default=dict, verbose_name='headers')),
                ('exchange', models.CharField(blank=True, max_length=255, verbose_name='exchange')),
                ('routing_key', models.CharField(blank=True, max_length=255, verbose_name='routing key')),
                ('queue', models.CharField(max_length=255)),
                ('available_at', models.DateTimeField()),
                ('token', models.UUIDField(db_index=True, null=True)),
                ('deliveries', models.PositiveIntegerField(default=0)),
                ('reply_to', models.CharField(blank=True, max_length=255)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'indexes': [models.Index(fields=['queue', 'available_at', 'id'], name='eventbus_queued_due')],
            },
        ),
        migrations.CreateModel(
            name='Throughput',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('worker_id', models.UUIDField()),
                ('minute', models.DateTimeField()),
                ('published', models.PositiveIntegerField(default=0)),
                ('handled', models.PositiveIntegerField(default=0)),
                ('retried', models.PositiveIntegerField(default=0)),
                ('parked', models.PositiveIntegerField(default=0)),
            ],
            options={
                'indexes': [models.Index(fields=['minute'], name='eventbus_throughput_minute')],
                'constraints': [models.UniqueConstraint(fields=('worker_id', 'minute'), name='eventbus_throughput_once')],
            },
        ),
        migrations.CreateModel(
            name='Worker',
            fields=[
                ('id', models.UUIDField(default=django_eventbus.events.message.uuid7, editable=False, primary_key=True, serialize=False, verbose_name='id')),
                ('kind', models.CharField(choices=[('relay', 'relay'), ('consumer', 'consumer'), ('both', 'consumer with relay')], max_length=10, verbose_name='kind')),
                ('service', models.CharField(max_length=255, verbose_name='service')),
                ('host', models.CharField(max_length=255, verbose_name='host')),
                ('pid', models.PositiveIntegerField(verbose_name='pid')),
                ('version', models.CharField(max_length=40, verbose_name='version')),
                ('queues', models.JSONField(blank=True, default=list, verbose_name='queues')),
                ('started_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='started at')),
                ('seen_at', models.DateTimeField(default=django.utils.timezone.now, verbose_name='seen at')),
                ('expected_at', models.DateTimeField(default=django_eventbus.models.monitoring.soon, verbose_name='expected at')),
                ('outage', models.CharField(blank=True, choices=[('connection', 'connection'), ('channel', 'channel'), ('io', 'no answer in time'), ('setup', 'declaring queues'), ('blocked', 'blocked'), ('refused', 'refused'), ('database', 'database'), ('recording', 'recording'), ('unknown', 'unknown')], max_length=20, verbose_name='outage')),
                ('outage_since', models.DateTimeField(blank=True, null=True, verbose_name='outage since')),
                ('is_stopping', models.BooleanField(default=False, verbose_name='is stopping')),
            ],
            options={
                'verbose_name': 'worker',
                'verbose_name_plural': 'workers',
                'indexes': [models.Index(fields=['seen_at'], name='eventbus_worker_seen')],
            },
        ),
        migrations.CreateModel(
            name='PlannedLetter',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('round', models.PositiveIntegerField()),
                ('state', models.CharField(choices=[('pending', 'pending'), ('sent', 'sent'), ('healed', 'healed'), ('failed', 'failed again'), ('skipped', 'skipped'), ('unknown', 'unanswered'), ('discarded', 'discarded'), ('restored', 'restored')], default='pending', max_length=10)),
                ('reason', models.CharField(blank=True, choices=[('changed', 'it was %(detail)s in the meantime'), ('pruned', 'its dead letter was pruned'), ('redriven', 'it was re-driven in the meantime'), ('redriven_by', '%(detail)s re-drove it in the meantime'), ('redriven_again', 'it failed and was then re-driven again'), ('unsent', 'it did not reach its queue'), ('timeout', 'no outcome was reported within %(detail)s'), ('invalid', 'the patched payload is not valid: %(detail)s'), ('plan_cancelled', 'the plan was cancelled'), ('error', '%(detail)s')], max_length=20)),
                ('detail', models.CharField(blank=True, max_length=255)),
                ('sent_as', models.CharField(blank=True, max_length=255)),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('settled_at', models.DateTimeField(blank=True, null=True)),
                ('dead_letter', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='planned', to='eventbus.deadletter')),
                ('plan', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='planned', to='eventbus.plan')),
            ],
            options={
                'verbose_name': 'planned letter',
                'verbose_name_plural': 'planned letters',
                'indexes': [models.Index(fields=['plan', 'state', 'id'], name='eventbus_planned_state'), models.Index(condition=models.Q(('settled_at__isnull', False)), fields=['plan', 'settled_at'], name='eventbus_planned_settled')],
                'constraints': [models.UniqueConstraint(fields=('dead_letter', 'plan'), name='eventbus_planned_once')],
            },
        ),
        PostgresSQL(APPEND_ONLY, NOT_APPEND_ONLY, hints={"model_name": "auditentry"}),
    ]
