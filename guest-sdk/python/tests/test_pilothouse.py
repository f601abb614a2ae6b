"""The package in this Python, by plain values."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pilothouse
from pilothouse import CONFIG_MAP, POD, Related, Target
from pilothouse.testing import fresh_plugin, reconcile
from pilothouse_wit.imports import types

THINGS = ("example.com", "v1", "things")
THING = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one", "namespace": "n"}, "spec": {"a": 1}}


class Case(unittest.TestCase):
    """Each test has a plugin of its own."""

    def setUp(self):
        self.plugin = self.enterContext(fresh_plugin())
        pilothouse.plugin("p", version="1")
        pilothouse.controller(
            *THINGS, kind="Thing", children=[CONFIG_MAP], related=[Related("pods", POD)], targets=[Target(POD, ("delete",))]
        )

    def handle(self, handler):
        return pilothouse.reconcile(*THINGS)(handler)


class ManifestTest(Case):
    def test_it_is_made_of_decorators(self):
        self.handle(lambda **_: None)
        controller = pilothouse.manifest()["controllers"][0]
        self.assertEqual(controller["primary"]["plural"], "things")
        self.assertEqual(controller["children"], [{"resource": CONFIG_MAP.to_json()}], "defaults are left out")
        self.assertNotIn("finalizer", controller)
        pilothouse.on.delete(*THINGS)(lambda **_: None)
        self.assertEqual(pilothouse.manifest()["controllers"][0]["finalizer"], "example.com/p")

    def test_a_finalizer_of_a_built_in_kind_is_for_the_author_to_name(self):
        pods = ("", "v1", "pods")
        pilothouse.controller(*pods, kind="Pod")
        pilothouse.reconcile(*pods)(lambda **_: None)
        pilothouse.on.delete(*pods)(lambda **_: None)
        self.handle(lambda **_: None)
        with self.assertRaisesRegex(ValueError, 'Pod .* `finalizer="example.com/cleanup"`'):
            pilothouse.manifest()

    def test_one_function_serves_both_lives_and_is_told_which(self):
        @pilothouse.on.create(*THINGS)
        @pilothouse.on.update(*THINGS)
        @pilothouse.on.delete(*THINGS)
        def handler(**_):
            return {"wanted": 0 if pilothouse.deleting() else 1}

        self.assertEqual(reconcile(THING).status, {"wanted": 1})
        self.assertTrue(reconcile(THING, deleting=True).released)

    def test_a_function_with_two_decorators_is_called_once(self):
        calls = []

        @pilothouse.on.create(*THINGS)
        @pilothouse.on.update(*THINGS)
        def handler(name, **_):
            calls.append(name)

        reconcile(THING)
        self.assertEqual(calls, ["one"])

    def test_mistakes_are_told_while_the_file_is_read(self):
        with self.assertRaisesRegex(TypeError, "no argument is called `specc`"):
            self.handle(lambda specc: None)
        with self.assertRaisesRegex(ValueError, "no controller of example.com/v1/thinks"):
            pilothouse.reconcile("example.com", "v1", "thinks")
        with self.assertRaisesRegex(ValueError, "has no handler"):
            pilothouse.manifest()


class PassTest(Case):
    def test_arguments_go_by_name(self):
        seen = {}
        self.handle(lambda **arguments: seen.update(arguments))
        self.handle(lambda spec, labels: seen.update(apart=(spec, labels)))
        reconcile(THING, config={"c": 1}, now="2026-01-02T03:04:05Z")
        self.assertEqual(seen["apart"], ({"a": 1}, {}))
        self.assertEqual((seen["name"], seen["namespace"], seen["config"]), ("one", "n", {"c": 1}))
        self.assertEqual(seen["now"].isoformat(), "2026-01-02T03:04:05+00:00")

    def test_what_handlers_return_is_the_status(self):
        self.handle(lambda **_: {"x": 1})
        self.handle(lambda **_: None)
        self.handle(lambda **_: {"y": 2})
        self.handle(lambda **_: pilothouse.condition("Ready", None, "Waiting"))
        outcome = reconcile(THING)
        self.assertEqual(outcome.status, {"x": 1, "y": 2})
        self.assertEqual(outcome.conditions["Ready"]["status"], "Unknown")

    def test_no_status_leaves_it_as_it_is(self):
        self.handle(lambda **_: None)
        self.assertEqual(reconcile(THING).actions, [])

    def test_a_status_that_is_none_is_a_mistake(self):
        self.handle(lambda **_: 3)
        with self.assertLogs("pilothouse.operator", "ERROR"):
            self.assertIn("returned a int", reconcile(THING).failure.value)

    def test_actions_keep_their_order_and_leave_defaults_out(self):
        def handler(**_):
            pilothouse.apply(CONFIG_MAP.object("a"), create_only=True)
            pilothouse.delete(CONFIG_MAP, "b")
            pilothouse.generate_secret("s", random={"password": (32, "base64url")})
            pilothouse.event("Done", "all of it", warning=True)
            pilothouse.requeue_after(1.5)

        self.handle(handler)
        apply, delete, secret, event, requeue = (action.value for action in reconcile(THING).actions)
        self.assertEqual(json.loads(apply.options), {"createOnly": True})
        self.assertEqual((delete.options, delete.target.uid), ("", None))
        self.assertEqual(secret.random[0].alphabet, types.Alphabet.BASE64URL)
        self.assertEqual((event.severity, requeue), (types.Severity.WARNING, 1500))

    def test_actions_outside_a_pass_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, "no pass is running"):
            pilothouse.apply(CONFIG_MAP.object("a"))


class FailureTest(Case):
    def failing(self, error):
        def handler(**_):
            pilothouse.condition("Ready", False, "Bad")
            pilothouse.apply(CONFIG_MAP.object("a"))
            raise error

        self.handle(handler)
        return reconcile(THING)

    def test_permanent_is_invalid_and_keeps_what_was_decided(self):
        outcome = self.failing(pilothouse.PermanentError("spec.a: no"))
        self.assertEqual(outcome.failure, types.Failure_Invalid("spec.a: no"))
        self.assertEqual((len(outcome.objects), outcome.conditions["Ready"]["reason"]), (1, "Bad"))

    def test_temporary_is_retried_with_backoff(self):
        outcome = self.failing(pilothouse.TemporaryError("later"))
        self.assertEqual(outcome.failure, types.Failure_Retry("later"))
        self.assertEqual(len(outcome.objects), 1)

    def test_temporary_with_a_delay_waits(self):
        with self.assertLogs("pilothouse.operator", "WARNING"):
            outcome = self.failing(pilothouse.TemporaryError("later", delay=5))
        self.assertEqual((outcome.failure, outcome.requeued_seconds), (None, 5))

    def test_a_mistake_carries_nothing_out_and_leaves_its_traceback(self):
        with self.assertLogs("pilothouse.operator", "ERROR") as logs:
            outcome = self.failing(KeyError("replicas"))
        self.assertEqual(outcome.actions, [])
        self.assertEqual(outcome.failure, types.Failure_Retry("KeyError: 'replicas'"))
        self.assertIn("raise error", logs.output[0])


class SchemaTest(unittest.TestCase):
    """Objects that a handler need not be ready for."""

    def setUp(self):
        self.plugin = self.enterContext(fresh_plugin())
        spec = {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer"},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "port": {"x-kubernetes-int-or-string": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "items": {"type": "object", "required": ["name"]}},
            },
        }
        schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec}}
        version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
        pilothouse.controller(*THINGS, kind="Thing", crd={"spec": {"versions": [version]}})
        pilothouse.reconcile(*THINGS)(lambda spec, **_: {"size": spec["size"]})
        pilothouse.on.delete(*THINGS)(lambda **_: None)

    def failure(self, spec):
        return reconcile({**THING, "spec": spec}).failure

    def test_what_is_wrong_is_the_users_to_mend_and_named(self):
        for spec, problem in [
            (None, "spec: is missing"),
            ("text", "spec: a mapping would be right"),
            ({}, "spec.size: is missing"),
            ({"size": "1"}, "spec.size: a whole number would be right"),
            ({"size": True}, "spec.size: a whole number would be right"),
            ({"size": 1, "mode": "c"}, "spec.mode: 'c' is none of 'a', 'b'"),
            ({"size": 1, "port": []}, "spec.port: a whole number or a text would be right"),
            ({"size": 1, "labels": {"x": 1}}, "spec.labels.x: a text would be right"),
            ({"size": 1, "list": [{"name": "a"}, {}]}, "spec.list[1].name: is missing"),
        ]:
            self.assertEqual(self.failure(spec), types.Failure_Invalid(problem))

    def test_what_is_right_or_unknown_passes(self):
        spec = {"size": 1, "mode": "a", "port": "http", "labels": {"x": "1"}, "list": None, "more": [1]}
        self.assertIsNone(self.failure(spec))

    def test_what_is_wrong_can_still_be_deleted(self):
        self.assertTrue(reconcile({**THING, "spec": {}}, deleting=True).released)


class LookUpTest(Case):
    def test_the_pass_ends_until_there_is_an_answer(self):
        def handler(**_):
            pilothouse.apply(CONFIG_MAP.object("before"))
            try:
                pods = pilothouse.look_up("mine", POD, selector="app=a")
            except Exception:
                self.fail("an author's handler must not catch it")
            return {"pods": [pod["metadata"]["name"] for pod in pods]}

        self.handle(handler)
        first = reconcile(THING)
        self.assertEqual([type(action) for action in first.actions], [types.Action_LookUp])
        self.assertEqual(json.loads(first.asked[0].options), {"labelSelector": "app=a"})
        self.assertEqual(reconcile(THING, related={"mine": [POD.object("x")]}).status, {"pods": ["x"]})


class DeletionTest(Case):
    def test_it_is_released_when_all_handlers_return(self):
        self.handle(lambda **_: self.fail("the object is being deleted"))
        pilothouse.on.delete(*THINGS)(lambda **_: {"ignored": True})
        outcome = reconcile(THING, deleting=True)
        self.assertEqual([type(action) for action in outcome.actions], [types.Action_Release])

    def test_it_is_held_while_one_does_not(self):
        def handler(**_):
            raise pilothouse.TemporaryError("not yet")

        pilothouse.on.delete(*THINGS)(handler)
        self.assertFalse(reconcile(THING, deleting=True).released)


class ContractTest(unittest.TestCase):
    def test_the_packaged_contract_is_the_repositorys(self):
        here = Path(__file__).parents[1]
        packaged = (here / "src/pilothouse/operator.wit").read_text()
        self.assertEqual(packaged, (here / "../../wit/operator.wit").read_text(), "`make generate` writes it")

    @unittest.skipUnless(importlib.util.find_spec("componentize_py"), "needs componentize-py, as `make test` has it")
    def test_the_types_are_those_of_the_contract(self):
        source = Path(__file__).parents[1] / "src"
        with tempfile.TemporaryDirectory() as directory:
            command = "import sys; from componentize_py import script; sys.exit(script())"
            arguments = ["--quiet", "--wit-path", str(source / "pilothouse/operator.wit"), "--world", "guarding-plugin"]
            arguments += ["--world-module", "pilothouse_wit", "bindings", f"{directory}/made"]
            subprocess.run([sys.executable, "-c", command, *arguments], check=True)
            made = Path(directory, "made")
            files = [*made.glob("pilothouse_wit/**/*.py"), made / "componentize_py_types.py"]
            self.assertGreater(len(files), 4)
            for file in files:
                name = file.relative_to(made)
                self.assertEqual((source / name).read_text(), file.read_text(), f"{name}: `make generate` writes it")


if __name__ == "__main__":
    unittest.main()
