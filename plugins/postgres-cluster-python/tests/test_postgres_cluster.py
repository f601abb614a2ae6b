"""The plugin in this Python, by plain values."""

import unittest

from pilothouse.testing import reconcile, validate

import postgres_cluster


def cluster(**spec):
    return {
        "apiVersion": "db.example.com/v1alpha1",
        "kind": "PostgresCluster",
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u"},
        "spec": {"replicas": 3, "version": "16", "storage": "20Gi", **spec},
    }


def running(ready, **metadata):
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "orders", **metadata},
        "status": {"replicas": 3, "readyReplicas": ready},
    }


class PostgresClusterTest(unittest.TestCase):
    def test_the_stateful_set_is_as_the_spec_says_and_the_log_tells(self):
        with self.assertLogs("pilothouse.operator", "INFO") as logs:
            outcome = reconcile(cluster())
        self.assertEqual(logs.records[0].getMessage(), "ensuring orders has 3 replicas")
        spec = outcome.applied("StatefulSet", "orders")["spec"]
        self.assertEqual(spec["replicas"], 3)
        self.assertEqual(spec["template"]["spec"]["containers"][0]["image"], "postgres:16")
        self.assertEqual(outcome.status, {"desiredReplicas": 3, "replicas": 0, "readyReplicas": 0})
        self.assertEqual(outcome.conditions["Ready"]["status"], "False")

    def test_ready_follows_the_instances(self):
        outcome = reconcile(cluster(), children=[running(3)])
        self.assertEqual(outcome.conditions["Ready"]["reason"], "AllReplicasReady")

    def test_the_same_state_gives_the_same_actions(self):
        self.assertEqual(reconcile(cluster(), seed=1).actions, reconcile(cluster(), seed=2).actions)

    def test_a_size_that_is_none_is_the_users_to_change(self):
        outcome = reconcile(cluster(storage="0Gi"))
        self.assertEqual(outcome.failure.value, "spec.storage: 0Gi is no size, at least 1Gi would be right")
        self.assertEqual([body["kind"] for body in outcome.objects], [])

    def test_it_is_refused_before_it_is_stored_too(self):
        self.assertEqual(str(validate(cluster(storage="0Gi"))), "spec.storage: 0Gi is no size, at least 1Gi would be right")

    def test_volumes_do_not_shrink(self):
        (cause,) = validate(cluster(storage="9Gi"), old=cluster(storage="10Gi")).causes
        self.assertEqual((cause.field, cause.reason), ("spec.storage", "FieldValueForbidden"))
        self.assertEqual(cause.message, "volumes cannot shrink, 10Gi or more would be right")
        for before in ("0Gi", "9Gi", "010Gi"):
            self.assertTrue(validate(cluster(storage="10Gi"), old=cluster(storage=before)).allowed)

    def test_deletion_waits_for_the_instances(self):
        with self.assertLogs("pilothouse.operator", "INFO") as logs:
            first = reconcile(cluster(), children=[running(3)], deleting=True)
        self.assertEqual(logs.records[0].getMessage(), "ensuring orders has 0 replicas")
        self.assertEqual((first.status["desiredReplicas"], first.objects), (0, []), "nothing is made any more")
        self.assertEqual((first.deleted, first.released), ([("StatefulSet", "orders")], False))
        self.assertEqual(first.requeued_seconds, 10)
        going = running(1, deletionTimestamp="2025-01-01T00:00:00Z")
        second = reconcile(cluster(), children=[going], deleting=True)
        self.assertEqual((second.deleted, second.released), ([], False))
        self.assertTrue(reconcile(cluster(), deleting=True).released)


if __name__ == "__main__":
    unittest.main()
