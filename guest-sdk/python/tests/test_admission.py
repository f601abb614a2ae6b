"""Handlers of webhooks in this Python, by plain values."""

import unittest

import pilothouse
from pilothouse import POD, AdmissionError, PermanentError
from pilothouse.testing import fresh_plugin, mutate, reconcile, validate

THINGS = ("example.com", "v1", "things")
PODS = ("", "v1", "pods")
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "one", "namespace": "n"}, "spec": {"replicas": 9}}


def crd(**spec):
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


def thing(**spec):
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "one", "namespace": "n"}, "spec": spec}


class Case(unittest.TestCase):
    """Each test has a plugin of its own."""

    def setUp(self):
        self.plugin = self.enterContext(fresh_plugin())
        pilothouse.plugin("p", version="1")
        pilothouse.controller(*THINGS, kind="Thing", crd=crd(properties={"size": {"type": "integer"}}))
        pilothouse.reconcile(*THINGS)(lambda **_: None)

    def guard(self):
        (guard,) = pilothouse.manifest()["admission"]
        return guard


class ManifestTest(Case):
    def test_without_handlers_nothing_is_guarded(self):
        self.assertNotIn("admission", pilothouse.manifest())

    def test_a_guard_says_what_its_handlers_ask_for_and_leaves_defaults_out(self):
        pilothouse.on.validate(*THINGS)(lambda **_: None)
        resource = {"group": "example.com", "version": "v1", "plural": "things", "kind": "Thing", "scope": "Namespaced"}
        self.assertEqual(self.guard(), {"resource": resource})
        pilothouse.on.validate(*THINGS, operations=["DELETE"])(lambda **_: None)
        pilothouse.on.validate(*THINGS, operations="UPDATE", subresource="scale")(lambda **_: None)
        pilothouse.on.mutate(*THINGS)(lambda **_: None)
        self.assertEqual(
            self.guard(),
            {
                "resource": resource,
                "operations": ["create", "update", "delete"],
                "subresources": ["scale"],
                "defaults": True,
            },
        )

    def test_mutations_alone_check_nothing(self):
        pilothouse.on.mutate(*THINGS, operations=["CREATE"])(lambda **_: None)
        guard = self.guard()
        self.assertEqual((guard["validates"], guard["defaults"], guard["operations"]), (False, True, ["create"]))

    def test_what_is_said_of_the_guard_is_in_the_manifests_words(self):
        pilothouse.guard(
            *THINGS,
            ignore_failures=True,
            timeout_seconds=3,
            exact_version=True,
            reinvoke=True,
            object_selector={"matchLabels": {"a": "b"}},
            match_conditions={"mine": "true"},
        )
        pilothouse.on.validate(*THINGS)(lambda **_: None)
        guard = self.guard()
        del guard["resource"]
        self.assertEqual(
            guard,
            {
                "failurePolicy": "Ignore",
                "timeoutSeconds": 3,
                "matchPolicy": "Exact",
                "reinvocation": "IfNeeded",
                "objectSelector": {"matchLabels": {"a": "b"}},
                "matchConditions": [{"name": "mine", "expression": "true"}],
            },
        )

    def test_a_kind_of_others_is_named(self):
        with self.assertRaisesRegex(ValueError, "nothing is known of /v1/pods.*kind=KIND"):
            pilothouse.on.validate(*PODS)
        pilothouse.guard(*PODS, kind="Pod", ignore_failures=True)
        with self.assertRaisesRegex(ValueError, "Pod is guarded and has no handler"):
            pilothouse.manifest()
        pilothouse.on.validate(*PODS)(lambda **_: None)
        self.assertEqual(self.guard(), {"resource": POD.to_json(), "failurePolicy": "Ignore"})
        with self.assertRaisesRegex(ValueError, "/v1/pods has a guard already"):
            pilothouse.guard(*PODS)

    def test_mistakes_are_told_while_the_file_is_read(self):
        with self.assertRaisesRegex(TypeError, "no argument is called `children`"):
            pilothouse.on.validate(*THINGS)(lambda children: None)
        with self.assertRaisesRegex(TypeError, "no argument is called `patch`"):
            pilothouse.on.validate(*THINGS)(lambda patch: None)
        with self.assertRaisesRegex(ValueError, "operations: 'create' is none of CREATE, UPDATE, DELETE"):
            pilothouse.on.validate(*THINGS, operations=["create"])
        with self.assertRaisesRegex(ValueError, "operations: '' is none of"):
            pilothouse.on.validate(*THINGS, operations=[])
        with self.assertRaisesRegex(ValueError, "nothing can be changed when an object is deleted"):
            pilothouse.on.mutate(*THINGS, operations=["DELETE"])
        with self.assertRaisesRegex(ValueError, "subresource: 'log' is none of status, scale"):
            pilothouse.on.validate(*THINGS, subresource="log")
        with self.assertRaisesRegex(ValueError, "reason: 'Wrong' is none of FieldValueInvalid, "):
            AdmissionError("no", reason="Wrong")

    def test_scales_are_of_one_kind(self):
        pilothouse.guard(*PODS, kind="Pod")
        for kind in (THINGS, PODS):
            pilothouse.on.validate(*kind, subresource="scale")(lambda **_: None)
        with self.assertRaisesRegex(ValueError, "(Pod and Thing|Thing and Pod) have handlers for `scale`"):
            pilothouse.manifest()


class ValidateTest(Case):
    def check(self, handler, **options):
        return pilothouse.on.validate(*THINGS, **options)(handler)

    def refusing(self, error):
        def handler(**_):
            raise error

        self.check(handler)
        return validate(thing())

    def test_arguments_go_by_name(self):
        seen = {}
        self.check(lambda **arguments: seen.update(arguments))
        before, after = thing(size=1), thing(size=2)
        validate(after, old=before, username="ann", groups=["g"], dryrun=True, config={"c": 1})
        self.assertEqual((seen["spec"], seen["old"], seen["new"], seen["body"]), ({"size": 2}, before, after, after))
        self.assertEqual((seen["name"], seen["namespace"], seen["operation"]), ("one", "n", "UPDATE"))
        self.assertEqual(seen["userinfo"], {"username": "ann", "groups": ["g"]})
        self.assertEqual((seen["dryrun"], seen["subresource"], seen["config"]), (True, None, {"c": 1}))
        self.assertEqual(seen["now"].year, 2025)
        self.assertNotIn("patch", seen)

    def test_a_name_that_is_to_be_generated_is_none(self):
        self.check(lambda name, warnings, **_: warnings.append(str(name)))
        body = thing()
        body["metadata"] = {"generateName": "a-"}
        self.assertEqual(validate(body).warnings, ["None"])

    def test_an_error_is_a_cause_with_its_field(self):
        verdict = self.refusing(AdmissionError("only grows", field="spec.size", reason="FieldValueForbidden"))
        (cause,) = verdict.causes
        self.assertEqual((cause.field, cause.reason, cause.message), ("spec.size", "FieldValueForbidden", "only grows"))
        self.assertEqual((verdict.allowed, str(verdict)), (False, "spec.size: only grows"))

    def test_what_a_pass_raises_refuses_as_well(self):
        for text, field, message in [
            ("spec.ports[0].name: too long: 64", "spec.ports[0].name", "too long: 64"),
            ("metadata.annotations[x]: no port", "metadata.annotations[x]", "no port"),
            ("not so: never", "", "not so: never"),
            ("special: never", "", "special: never"),
            ("", "", "is not allowed"),
        ]:
            with self.subTest(text), fresh_plugin():
                pilothouse.controller(*THINGS, kind="Thing")
                (cause,) = self.refusing(PermanentError(text)).causes
                self.assertEqual((cause.field, cause.message), (field, message))

    def test_in_a_pass_it_is_a_permanent_error(self):
        def handler(**_):
            raise AdmissionError("use 1 or more", field="spec.size")

        pilothouse.reconcile(*THINGS)(handler)
        self.assertEqual(reconcile(thing()).failure.value, "spec.size: use 1 or more")

    def test_each_handler_is_asked_and_each_cause_told(self):
        def first(warnings, **_):
            warnings.append("soon no more")
            raise AdmissionError("a", field="spec.a")

        def second(**_):
            raise ExceptionGroup("", [AdmissionError("b", field="spec.b"), ExceptionGroup("", [PermanentError("c")])])

        self.check(first)
        self.check(first)
        self.check(second)
        verdict = validate(thing())
        self.assertEqual(str(verdict), "spec.a: a\nspec.b: b\nc")
        self.assertEqual(verdict.warnings, ["soon no more"])

    def test_a_mistake_fails_the_call_and_leaves_its_traceback(self):
        for error in (KeyError("size"), ExceptionGroup("", [AdmissionError("a"), KeyError("size")])):
            with self.subTest(error), self.assertLogs("pilothouse.operator", "ERROR") as logs, fresh_plugin():
                pilothouse.controller(*THINGS, kind="Thing")
                with self.assertRaises(type(error)):
                    self.refusing(error)
            self.assertIn("raise error", logs.output[0])

    def test_handlers_are_asked_about_their_requests_only(self):
        calls = []
        self.check(lambda **_: calls.append("update"), operations=["UPDATE"])
        self.check(lambda **_: calls.append("delete"), operations=["DELETE"])
        self.check(lambda spec, **_: calls.append(spec["replicas"]), subresource="scale")
        validate(thing())
        validate(thing(), operation="DELETE")
        validate(SCALE, old=SCALE, subresource="scale")
        validate(thing(), old=thing(), subresource="status")
        self.assertEqual(calls, ["delete", 9])

    def test_a_deletion_has_the_object_as_it_is(self):
        seen = {}
        self.check(lambda **arguments: seen.update(arguments), operations=["DELETE"])
        validate(thing(size="none, and can go all the same"), operation="DELETE")
        self.assertEqual((seen["new"], seen["spec"], seen["old"]["spec"]), (None, *[{"size": "none, and can go all the same"}] * 2))

    def test_what_the_schema_does_not_allow_is_no_mistake_of_the_handler(self):
        self.check(lambda spec, old, **_: spec["size"] + (old["spec"]["size"] if old else 0))
        (cause,) = validate(thing(size="1")).causes
        self.assertEqual((cause.field, cause.message), ("spec.size", "a whole number would be right"))
        self.assertTrue(validate(thing(size=1), old=thing(size="1")).allowed)

    def test_what_the_schema_does_not_allow_can_still_be_deleted(self):
        def held(spec, **_):
            if spec["size"] + 1 > 9:
                raise AdmissionError("held")

        self.check(held, operations=["DELETE"])
        self.assertEqual(str(validate(thing(size=9), operation="DELETE")), "held")
        self.assertTrue(validate(thing(size="9"), operation="DELETE").allowed)
        with self.assertLogs("pilothouse.operator", "ERROR"), self.assertRaises(KeyError):
            validate(thing(), operation="DELETE")

    def test_objects_of_others_are_let_through(self):
        self.refusing(AdmissionError("no"))
        self.assertTrue(validate(POD.object("a")).allowed)


class MutateTest(Case):
    def handle(self, handler):
        return pilothouse.on.mutate(*THINGS)(handler)

    def test_a_patch_is_merged(self):
        def handler(patch, name, spec, **_):
            if "title" not in spec:
                patch.spec["title"] = name
            patch.spec["nested"] = {"b": {"c": 1, "d": None}}
            patch.spec["gone"] = None

        self.handle(handler)
        given = thing(nested={"a": 1, "b": {"d": 2}}, gone=1)
        self.assertEqual(mutate(given), thing(nested={"a": 1, "b": {"c": 1}}, title="one"))
        self.assertEqual(mutate(thing(title="kept"))["spec"]["title"], "kept")

    def test_handlers_share_a_patch_and_one_that_is_empty_changes_nothing(self):
        self.handle(lambda patch, **_: patch.spec)
        bare = thing()
        del bare["spec"]
        self.assertEqual(mutate(bare), bare)
        self.handle(lambda patch, **_: patch.spec.setdefault("size", 1))
        self.handle(lambda patch, **_: patch.spec.setdefault("size", 2))
        self.assertEqual(mutate(bare)["spec"], {"size": 1})

    def test_a_kind_without_a_spec_has_its_content_changed(self):
        pilothouse.guard("", "v1", "configmaps", kind="ConfigMap")
        pilothouse.on.mutate("", "v1", "configmaps")(lambda patch, **_: patch.update(data={"a": "b"}))
        self.assertEqual(mutate(pilothouse.CONFIG_MAP.object("a"))["data"], {"a": "b"})

    def test_what_would_be_without_effect_is_told(self):
        for handler, error, words in [
            (lambda spec, **_: spec.update(size=1), TypeError, "`patch` is what it changes"),
            (lambda patch, **_: patch.update(metadata={}), TypeError, "has patched `metadata`"),
            (lambda patch, **_: patch.meta, AttributeError, "patch.meta: .* `patch.spec`"),
        ]:
            with self.subTest(words), fresh_plugin():
                pilothouse.controller(*THINGS, kind="Thing")
                self.handle(handler)
                with self.assertRaisesRegex(error, words), self.assertLogs("pilothouse.operator", "ERROR"):
                    mutate(thing())

    def test_a_refusal_is_no_mutation(self):
        def handler(**_):
            raise AdmissionError("no", field="spec.size")

        self.handle(handler)
        with self.assertLogs("pilothouse.operator", "ERROR"), self.assertRaisesRegex(TypeError, "`on.validate` can: spec.size: no"):
            mutate(thing())

    def test_the_api_servers_own_checks_come_after_it_and_say_better_what_is_wrong(self):
        self.handle(lambda spec, patch, **_: patch.spec.update(double=spec["size"] / 1 * 2))
        self.assertEqual(mutate(thing(size="1")), thing(size="1"))
        with self.assertLogs("pilothouse.operator", "ERROR"), self.assertRaises(KeyError):
            mutate(thing())

    def test_a_mutation_without_end_is_found_by_its_test(self):
        self.handle(lambda spec, patch, **_: patch.spec.update(size=spec.get("size", 0) + 1))
        with self.assertRaisesRegex(AssertionError, "nothing may change"):
            mutate(thing())


if __name__ == "__main__":
    unittest.main()
