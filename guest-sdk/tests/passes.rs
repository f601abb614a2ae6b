//! What a pass knows and may decide, through a reconciler that uses all of it.

use std::time::Duration;

use pilothouse_sdk::log::Level;
use pilothouse_sdk::prelude::*;
use pilothouse_sdk::testing::Cluster;

/// Copies a ConfigMap that somebody else owns, once it is known, into one of its own.
#[derive(Deserialize, JsonSchema)]
struct Mirror {
    source: String,
    #[serde(default)]
    nested: Nested,
}

#[derive(Default, Deserialize, JsonSchema)]
struct Nested {
    #[serde(default)]
    list: Vec<Item>,
}

#[derive(Deserialize, JsonSchema)]
struct Item {
    #[expect(dead_code, reason = "only whether it can be read matters")]
    size: i32,
}

#[derive(Deserialize)]
struct Config {
    prefix: String,
}

#[derive(Serialize, JsonSchema)]
struct MirrorStatus {
    pods: usize,
}

impl Reconciler for Mirror {
    const PRIMARY: Resource = Resource::namespaced("example.com", "v1", "Mirror", "mirrors");
    type Status = MirrorStatus;

    fn controller() -> Controller {
        Controller::new(Crd::of::<Self>())
            .owns(CONFIG_MAP)
            .reads(Related::on_request("sources", CONFIG_MAP))
            .reads(Related::matching("pods", POD, "mirror=$(name)"))
            .changes(Target::patch_and_delete(POD))
            .finalizer("example.com/cleanup")
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        assert!(pass.spec.nested.list.is_empty());
        let pods = pass.related("pods").map_or(0, |answer| answer.objects.len());
        actions.push(pass.set_status(&MirrorStatus { pods }));
        if let Some(rejected) = pass.rejected().first() {
            actions.push(Event::warning(&rejected.reason, rejected.message.as_str()));
        }

        let source = pass.spec.source.as_str();
        let Some(answer) = pass.related("source") else {
            actions.push(LookUp::one("source", CONFIG_MAP, source));
            return Ok(());
        };
        let Some(found) = answer.objects.first() else {
            actions.requeue_after(Duration::from_secs(10));
            log::warn(&format!("{source} is not there"));
            return Err(Failure::Retry("the source is missing".to_owned()));
        };
        let text = views::ConfigMap(found).data("text").unwrap_or_default();
        let config: Config = pass.config()?;
        actions.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pass.name()},
            "data": {"text": config.prefix + text},
        }));
        Ok(())
    }

    fn finalize(pass: &LastPass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        let Some(pod) = pass.related("pods").and_then(|pods| pods.objects.first()) else {
            actions.release();
            return Ok(());
        };
        actions.push(Delete::new(Reference::to(POD, pod)));
        Ok(())
    }
}

fn mirror() -> Cluster<Mirror> {
    let mut cluster = Cluster::new("shop", "copy", json!({"source": "original"}));
    cluster.config = json!({"prefix": "> "});
    cluster
}

fn original() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "original"}, "data": {"text": "hello"}})
}

#[test]
fn a_look_up_is_answered_in_the_same_pass() {
    let mut cluster = mirror();
    cluster.answer("source", vec![original()]);
    assert_eq!(cluster.pass(), ["status", "create ConfigMap copy"]);
    assert_eq!(cluster.child(CONFIG_MAP, "copy").unwrap()["data"]["text"], "> hello");
    assert!(cluster.pass().is_empty());
}

#[test]
fn what_a_failing_pass_has_pushed_stays() {
    let mut cluster = mirror();
    cluster.answer("source", vec![]);
    let outcome = cluster.reconcile();
    assert_eq!(outcome.failure, Some(Failure::Retry("the source is missing".to_owned())));
    assert_eq!(outcome.status().unwrap(), json!({"pods": 0}));
    assert_eq!(outcome.log, [(Level::Warn, "original is not there".to_owned())]);
}

#[test]
fn rejected_actions_are_shown_once() {
    let mut cluster = mirror();
    cluster.answer("source", vec![original()]);
    cluster.settle();
    cluster.reject(1, CONFIG_MAP, "copy", "Conflict", "somebody else has data.text");
    let events: Vec<_> = cluster.reconcile().events().cloned().collect();
    assert_eq!(events, [Event::warning("Conflict", "somebody else has data.text")]);
    cluster.pass();
    assert_eq!(cluster.reconcile().events().count(), 0);
}

#[test]
fn a_wrong_spec_names_the_path() {
    let cases = [
        (json!({}), "spec: missing field `source`"),
        (json!({"source": 1}), "spec.source: invalid type: integer `1`, expected a string"),
        (
            json!({"source": "a", "nested": {"list": [{"size": 1}, {"size": "x"}]}}),
            "spec.nested.list[1].size: invalid type: string \"x\", expected i32",
        ),
    ];
    for (spec, expected) in cases {
        let outcome = Cluster::<Mirror>::new("shop", "copy", spec).reconcile();
        assert_eq!(outcome.failure, Some(Failure::Invalid(expected.to_owned())));
        assert!(outcome.actions.as_slice().is_empty());
    }
}

#[test]
fn a_wrong_config_is_no_fault_of_the_object() {
    let mut cluster = mirror();
    cluster.config = json!({"prefix": true});
    cluster.answer("source", vec![original()]);
    let expected = "config.prefix: invalid type: boolean `true`, expected a string";
    assert_eq!(cluster.reconcile().failure, Some(Failure::Retry(expected.to_owned())));
}

#[test]
fn finalizing_goes_on_until_it_releases() {
    let mut cluster = mirror();
    cluster.delete();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "uid": "u"}});
    cluster.answer("pods", vec![pod]);
    let outcome = cluster.reconcile();
    let target = json!({"kind": "Pod", "namespace": "shop", "name": "p", "uid": "u"});
    assert_eq!(outcome.to_json()["actions"], json!([{"delete": {"target": target}}]));

    cluster.answer("pods", vec![]);
    assert_eq!(cluster.pass(), ["release"]);
    assert!(cluster.is_gone());
}

#[test]
fn an_object_that_cannot_be_read_is_finalized_all_the_same() {
    for spec in [json!({}), json!({"source": 1}), json!("a text"), Value::Null] {
        let mut cluster = mirror();
        cluster.edit(|all| *all = spec.clone());
        assert!(matches!(cluster.reconcile().failure, Some(Failure::Invalid(_))), "{spec}");
        cluster.delete();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop", "uid": "u"}});
        cluster.answer("pods", vec![pod]);
        assert_eq!(cluster.reconcile().to_json()["actions"][0]["delete"]["target"]["name"], "p", "{spec}");
        cluster.answer("pods", vec![]);
        assert_eq!(cluster.pass(), ["release"], "{spec}");
    }
}

/// Its clean-up depends on the spec.
#[derive(Deserialize, JsonSchema)]
struct Bucket {
    name: String,
}

impl Reconciler for Bucket {
    const PRIMARY: Resource = Resource::namespaced("example.com", "v1", "Bucket", "buckets");
    type Status = NoStatus;

    fn controller() -> Controller {
        Controller::new(Crd::of::<Self>()).changes(Target::delete(CONFIG_MAP)).finalizer("example.com/bucket")
    }

    fn reconcile(_: &Pass<Self>, _: &mut Actions) -> Result<(), Failure> {
        Ok(())
    }

    fn finalize(pass: &LastPass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        actions.push(Delete::new(Reference::new(CONFIG_MAP, &pass.spec()?.name)));
        actions.release();
        Ok(())
    }
}

#[test]
fn a_clean_up_that_needs_the_spec_keeps_the_object_and_says_what_to_do() {
    let mut cluster = Cluster::<Bucket>::new("shop", "b", json!({"name": 1}));
    cluster.delete();
    let outcome = cluster.reconcile();
    assert!(outcome.actions.as_slice().is_empty(), "nothing is released that was not undone");
    let Some(Failure::Invalid(text)) = outcome.failure else { panic!("{:?}", outcome.failure) };
    assert!(text.starts_with("spec.name: invalid type: integer `1`, expected a string; "), "{text}");
    assert!(text.contains("take the finalizer example.com/bucket off"), "{text}");

    cluster.edit(|spec| spec["name"] = json!("photos"));
    assert_eq!(cluster.pass(), ["release"]);
    assert!(cluster.is_gone());
}

/// It has nothing to clean up.
#[derive(Deserialize, JsonSchema)]
struct Plain {
    #[expect(dead_code, reason = "only whether it can be read matters")]
    size: i32,
}

impl Reconciler for Plain {
    const PRIMARY: Resource = Resource::namespaced("example.com", "v1", "Plain", "plains");
    type Status = NoStatus;

    fn controller() -> Controller {
        Controller::new(Crd::of::<Self>()).finalizer("example.com/plain")
    }

    fn reconcile(_: &Pass<Self>, _: &mut Actions) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn nothing_to_undo_is_released_whatever_the_spec_is() {
    let mut cluster = Cluster::<Plain>::new("shop", "p", json!({"size": "big"}));
    assert!(matches!(cluster.reconcile().failure, Some(Failure::Invalid(_))));
    cluster.delete();
    assert_eq!(cluster.pass(), ["release"]);
}

/// What the host would refuse, a test refuses too.
#[derive(Deserialize, JsonSchema)]
struct Rogue {
    misdeed: String,
}

impl Reconciler for Rogue {
    const PRIMARY: Resource = Resource::namespaced("example.com", "v1", "Rogue", "rogues");
    type Status = NoStatus;

    fn controller() -> Controller {
        Controller::new(Crd::of::<Self>()).owns(CONFIG_MAP)
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        match pass.spec.misdeed.as_str() {
            "kind" => actions.apply(SERVICE.object("a")),
            "namespace" => {
                let mut map = CONFIG_MAP.object("a");
                map["metadata"]["namespace"] = json!("other");
                actions.apply(map);
            }
            "delete" => actions.push(Delete::new(Reference::new(POD, "a"))),
            "release" => actions.release(),
            "status" => {
                actions.push(pass.set_status(&NoStatus {}));
                actions.push(pass.set_status(&NoStatus {}));
            }
            "look-ups" => {
                let rounds =
                    (0..100).filter(|round: &u32| pass.related(&round.to_string()).is_some()).count();
                actions.push(LookUp::all(&rounds.to_string(), POD));
            }
            "same look-up" => actions.push(LookUp::all("pods", POD)),
            "twice" => {
                actions.apply(CONFIG_MAP.object("a"));
                actions.apply(CONFIG_MAP.object("a"));
            }
            "secret" => actions.push(SecretTemplate::new("a").random("key", 16, Alphabet::Base64Url)),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn what_the_host_would_refuse_is_refused() {
    let refused = |misdeed: &str| {
        let cluster = Cluster::<Rogue>::new("shop", "r", json!({"misdeed": misdeed}));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cluster.reconcile())).is_err()
    };
    for misdeed in
        ["kind", "namespace", "delete", "release", "status", "look-ups", "same look-up", "twice", "secret"]
    {
        assert!(refused(misdeed), "{misdeed}");
    }
    assert!(!refused("none"));
}
