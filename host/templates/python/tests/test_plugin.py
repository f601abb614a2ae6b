"""The plugin's function in this Python: no cluster, no host, no WebAssembly."""

import unittest

from pilothouse.testing import reconcile

import plugin  # noqa: F401, its handlers are what is tested


def resource(message):
    return {
        "apiVersion": "{{group}}/{{version}}",
        "kind": "{{kind}}",
        "metadata": {"name": "hello", "namespace": "default", "uid": "u"},
        "spec": {"message": message},
    }


class ReconcileTest(unittest.TestCase):
    def test_a_message_becomes_a_config_map(self):
        first = reconcile(resource("hello"))
        config_map = first.applied("ConfigMap", "hello-message")
        self.assertEqual(config_map["data"], {"message": "hello"})
        self.assertEqual(first.conditions["Ready"]["status"], "False")

        second = reconcile(resource("hello"), children=[config_map])
        self.assertEqual(second.objects, first.objects)
        self.assertEqual(second.conditions["Ready"]["status"], "True")

    def test_a_blank_message_is_the_users_to_change(self):
        outcome = reconcile(resource(" "))
        self.assertEqual(outcome.failure.value, "spec.message: is blank, a text would be right")
        self.assertEqual(outcome.objects, [])


if __name__ == "__main__":
    unittest.main()
