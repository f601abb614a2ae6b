//! The manifest that the SDK describes, the schema in `wit/` and what the host reads are one and the same form.

use std::time::Duration;

use pilothouse_model::guard::{FailurePolicy, MatchPolicy, Reinvocation};
use pilothouse_model::kind::Kind;
use pilothouse_model::manifest::{Manifest, Namespaces, Projection, Scope, TargetVerb};
use pilothouse_model::update::Method;
use pilothouse_sdk::prelude::*;

/// A plugin that uses everything that a manifest can say.
mod plugin {
    use super::*;

    /// A web site.
    #[derive(Deserialize, JsonSchema)]
    pub(crate) struct Web {
        /// How many.
        #[schemars(range(min = 1))]
        #[schemars(extend("x-kubernetes-validations" = [{"rule": "self >= oldSelf", "message": "only up"}]))]
        #[expect(dead_code, reason = "only its schema matters")]
        replicas: i32,
    }

    #[derive(Serialize, JsonSchema)]
    pub(crate) struct WebStatus {
        ready: i32,
    }

    impl Reconciler for Web {
        const PRIMARY: Resource = Resource::namespaced("example.com", "v1alpha1", "Web", "webs");
        type Status = WebStatus;

        fn controller() -> Controller {
            let crd = Crd::of::<Self>()
                .short_name("w")
                .names("^[a-z]+$", 20)
                .rule("self.spec.replicas < 9", "too many")
                .scale(".spec.replicas", ".status.ready")
                .column("Ready", Column::Integer, ".status.ready")
                .wide_column("Replicas", Column::Integer, ".spec.replicas")
                .age();
            let rolling =
                Update::rolling_in_place().while_condition("Available", "True").max_unavailable_percent(25);
            Controller::new(crd)
                .owns(Child::from(DEPLOYMENT).in_any_namespace().update(rolling))
                .owns(Child::from(SECRET).metadata_only().create_only().yield_conflicts())
                .reads(Related::matching("pods", POD, "web=$(name)").metadata_only())
                .reads(
                    Related::on_request("nodes", NODE)
                        .fields(&[".spec.unschedulable", ".status.conditions[*].type"]),
                )
                .changes(Target::patch_and_delete(POD))
                .finalizer("example.com/cleanup")
                .resync(Duration::from_mins(1))
        }

        fn reconcile(_: &Pass<Self>, _: &mut Actions) -> Result<(), Failure> {
            Ok(())
        }
    }

    /// Decorates a kind that exists already.
    #[derive(Deserialize)]
    pub(crate) struct Namespaces {}

    impl Reconciler for Namespaces {
        const PRIMARY: Resource = NAMESPACE;
        type Status = NoStatus;

        fn controller() -> Controller {
            Controller::new(NAMESPACE).changes(Target::patch(NAMESPACE))
        }

        fn reconcile(_: &Pass<Self>, _: &mut Actions) -> Result<(), Failure> {
            Ok(())
        }
    }

    impl Admission for Web {
        const GUARDED: Resource = Self::PRIMARY;

        fn guard() -> Guard {
            Guard::of(Self::GUARDED)
                .deletions()
                .scale()
                .status()
                .defaults()
                .fails_open()
                .timeout(Duration::from_secs(3))
                .exact_version()
                .reinvoked()
                .labelled(json!({"matchLabels": {"a": "b"}}))
                .only_if("one", "true")
                .only_if("two", "1 == 1")
        }

        fn validate(_: &Review<Self>) -> Verdict {
            Verdict::allow()
        }
    }

    impl Admission for Namespaces {
        const GUARDED: Resource = NAMESPACE;

        fn validate(_: &Review<Self>) -> Verdict {
            Verdict::allow()
        }
    }

    export!(Web, Namespaces; admission: Web, Namespaces);
}

fn validator() -> jsonschema::Validator {
    let schema = serde_json::from_str(include_str!("../../wit/manifest.schema.json")).expect("JSON");
    jsonschema::draft202012::meta::validate(&schema).expect("a schema of draft 2020-12");
    jsonschema::draft202012::new(&schema).expect("a schema of draft 2020-12")
}

#[test]
fn the_host_reads_what_the_sdk_describes() {
    let described = plugin::manifest().to_json();
    let manifest = Manifest::parse(&described.to_string()).unwrap();

    assert_eq!(
        (manifest.name.as_str(), manifest.version.as_str()),
        ("pilothouse-sdk", env!("CARGO_PKG_VERSION"))
    );
    let web = &manifest.controllers[0];
    assert_eq!(web.primary.kind(), Kind::new("example.com", "v1alpha1", "Web"));
    assert_eq!(web.primary.scope, Scope::Namespaced);
    assert_eq!(web.children[0].resource.plural, "deployments");
    assert_eq!((web.children[0].namespaces, web.children[1].namespaces), (Namespaces::Any, Namespaces::Own));
    let rolling = &web.children[0].update_strategy;
    assert_eq!((rolling.method, rolling.max_unavailable.of(8)), (Method::RollingInPlace, 2));
    assert_eq!(rolling.status_checks.conditions[0].type_name, "Available");
    let secret = &web.children[1];
    assert!(secret.create_only && !secret.force_conflicts && secret.projection == Projection::Metadata);
    assert_eq!(web.related[0].selector.as_deref(), Some("web=$(name)"));
    assert_eq!((web.related[1].selector.as_deref(), web.related[1].resource.scope), (None, Scope::Cluster));
    let fields = json!({"fields": [".spec.unschedulable", ".status.conditions[*].type"]});
    assert_eq!(serde_json::to_value(&web.related[1].projection).unwrap(), fields);
    assert_eq!(
        web.targets[0].verbs.iter().copied().collect::<Vec<_>>(),
        [TargetVerb::Patch, TargetVerb::Delete]
    );
    assert_eq!((web.finalizer.as_deref(), web.resync_seconds), (Some("example.com/cleanup"), Some(60)));
    assert_eq!(manifest.controllers[1].primary.kind(), Kind::new("", "v1", "Namespace"));
    assert_eq!(manifest.crds.len(), 1, "only kinds of its own have a CRD");

    let [web, namespaces] = &manifest.admission[..] else { panic!("{:?}", manifest.admission) };
    assert_eq!((web.operations.len(), web.subresources.len(), web.defaults), (3, 2, true));
    assert_eq!((web.failure_policy, web.timeout_seconds), (FailurePolicy::Ignore, 3));
    assert_eq!((web.match_policy, web.reinvocation), (MatchPolicy::Exact, Reinvocation::IfNeeded));
    assert_eq!(web.object_selector, Some(json!({"matchLabels": {"a": "b"}})));
    assert_eq!(web.match_conditions[1].expression, "1 == 1");
    assert!(web.is_own(&manifest) && !namespaces.is_own(&manifest));
    assert_eq!((namespaces.operations.len(), namespaces.timeout_seconds), (2, 10));
    assert!(namespaces.validates && !namespaces.defaults && namespaces.failure_policy == FailurePolicy::Fail);
}

#[test]
fn the_schema_accepts_what_the_sdk_describes() {
    let described = plugin::manifest().to_json();
    let errors: Vec<_> = validator().iter_errors(&described).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Changes one place of a right manifest, and asks both the schema and the host.
#[test]
fn the_schema_and_the_host_refuse_the_same() {
    let validator = validator();
    let wrong: [(&str, Value); 37] = [
        ("/name", json!("Web")),
        ("/name", json!("a".repeat(54))),
        ("/version", json!("")),
        ("/controllers", json!([])),
        ("/crds/0/kind", json!("Service")),
        ("/crds/0/metadata/name", json!("")),
        ("/controllers/0/primary/plural", json!("")),
        ("/controllers/0/primary/group", json!("Example.com")),
        ("/controllers/0/primary/scope", json!("Galaxy")),
        ("/controllers/0/children/0/projection", json!("some")),
        ("/controllers/0/children/0/projection", json!({"fields": []})),
        ("/controllers/0/children/0/projection", json!({"fields": ["status"]})),
        ("/controllers/0/children/0/projection", json!({"fields": [".status\\"]})),
        ("/controllers/0/children/0/projection", json!({"fields": [".status"], "else": 1})),
        ("/controllers/0/children/0/createOnly", json!("yes")),
        ("/controllers/0/children/0/forceConflict", json!(true)),
        ("/controllers/0/children/0/namespaces", json!("all")),
        ("/controllers/0/children/0/updateStrategy/method", json!("Rolling")),
        ("/controllers/0/children/0/updateStrategy/maxUnavailable", json!(0)),
        ("/controllers/0/children/0/updateStrategy/maxUnavailable", json!("05%")),
        ("/controllers/0/children/0/updateStrategy/maxUnavailable", json!("101%")),
        ("/controllers/0/children/0/updateStrategy/statusChecks/conditions/0/type", json!("")),
        ("/controllers/0/children/0/updateStrategy/statusChecks/conditions/0/state", json!("")),
        ("/controllers/0/related/0/name", json!("")),
        ("/controllers/0/targets/0/verbs", json!(["create"])),
        ("/controllers/0/finalizer", json!("cleanup")),
        ("/controllers/0/finalizer", json!("pilothouse.dev/mine")),
        ("/controllers/0/resyncSeconds", json!(9)),
        ("/controllers/0/chidren", json!([])),
        ("/admission/0/operations", json!([])),
        ("/admission/0/operations", json!(["connect"])),
        ("/admission/0/subresources", json!(["log"])),
        ("/admission/0/failurePolicy", json!("Maybe")),
        ("/admission/0/timeoutSeconds", json!(31)),
        ("/admission/0/objectSelector", json!("a=b")),
        ("/admission/0/matchConditions", json!([{"name": "x"}])),
        ("/admission/0/resource/plural", json!("")),
    ];
    for (pointer, value) in wrong {
        let mut manifest = plugin::manifest().to_json();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        manifest.pointer_mut(parent).unwrap()[field] = value.clone();
        assert!(!validator.is_valid(&manifest), "the schema accepts {pointer}: {value}");
        assert!(Manifest::parse(&manifest.to_string()).is_err(), "the host accepts {pointer}: {value}");
    }
}

#[test]
fn a_crd_has_all_that_a_kind_needs() {
    let crd = plugin::manifest().to_json()["crds"][0].clone();
    assert_eq!(crd["metadata"]["name"], "webs.example.com");
    assert_eq!(
        crd["spec"]["names"],
        json!({"kind": "Web", "listKind": "WebList", "plural": "webs", "singular": "web", "shortNames": ["w"]})
    );
    let version = &crd["spec"]["versions"][0];
    assert_eq!(
        version["subresources"],
        json!({
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.ready"},
        })
    );
    assert_eq!(version["additionalPrinterColumns"][1]["priority"], 1);

    let schema = &version["schema"]["openAPIV3Schema"];
    // As `kubectl explain web`, `web.spec` and `web.status` print them.
    assert_eq!(schema["description"], "A web site.");
    assert_eq!(schema["properties"]["spec"]["description"], "Desired state of the Web.");
    assert_eq!(schema["properties"]["status"]["description"], "Observed state of the Web.");
    assert_eq!(schema["required"], json!(["spec"]));
    assert_eq!(schema["x-kubernetes-validations"][0]["message"], "too many");
    assert_eq!(schema["properties"]["metadata"]["properties"]["name"]["maxLength"], 20);
    let replicas = &schema["properties"]["spec"]["properties"]["replicas"];
    assert_eq!(replicas["x-kubernetes-validations"][0]["rule"], "self >= oldSelf");

    let status = &schema["properties"]["status"]["properties"];
    assert_eq!(status["ready"]["type"], "integer");
    assert_eq!(status["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
    assert_eq!(status["observedGeneration"]["format"], "int64");
}

#[test]
fn each_version_explains_itself() {
    /// A web site, as it was.
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema matters")]
    struct Before {
        /// How many.
        count: i32,
    }
    #[derive(Deserialize, JsonSchema)]
    struct Undescribed {}

    let crd = Crd::of::<plugin::Web>().version::<Before>("v1alpha0").version::<Undescribed>("v1beta1");
    let manifest = pilothouse_sdk::Manifest {
        name: "web",
        version: "1",
        controllers: vec![Controller::new(crd)],
        guards: Vec::new(),
    };
    let crd = manifest.to_json()["crds"][0].clone();
    let version = |at: usize| &crd["spec"]["versions"][at]["schema"]["openAPIV3Schema"];
    assert_eq!(version(1)["description"], "A web site, as it was.");
    assert_eq!(version(1)["required"], json!(["spec"]));
    assert_eq!(version(2)["description"], "A web site.", "that of the kind, for want of its own");
    for at in 0..3 {
        let parts = &version(at)["properties"];
        assert_eq!(parts["spec"]["description"], "Desired state of the Web.");
        assert_eq!(parts["status"]["description"], "Observed state of the Web.");
    }
}
