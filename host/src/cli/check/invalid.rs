//! Wrong resources. The API server refuses most of them by the schema of the CRD, but not those that were stored before the
//! schema said so, nor where the CRD in the cluster is another one: a plugin sees such a resource one day. It must say what
//! is wrong with it, since a trap or a `retry` would come again for ever and tell the user nothing.

use pilothouse_model::action::Failure;
use serde_json::{Value, json};

use crate::cli::exit::Exit;
use crate::cli::offline::pass::{Caller, Moment};
use crate::cli::render::SEED;

use super::finding::{Finding, Rule};
use super::life;
use super::schema::{self, Wrong};
use super::suite::Report;
use super::world::World;

/// Wrong resources made of one case: each is a call.
const WRONGS_MAX: usize = 64;

/// A field that no schema has.
const UNKNOWN: &str = "pilothouseUnknownField";

/// Wrong resources of those that are then deleted: each is a deletion of one pass or a few.
const DELETED_WRONGS_MAX: usize = 16;

pub(super) fn check(caller: &Caller<'_>, world: &World<'_>, report: &mut Report) -> Result<(), Exit> {
    for wrong in by_schema(caller, world, WRONGS_MAX) {
        let passed = pass(caller, world, &wrong)?;
        let what = format!("{} {}", wrong.path, wrong.how);
        match passed {
            Err(finding) => {
                report.findings.push(Finding { text: format!("{what}: {}", finding.text), ..finding });
            }
            Ok(Some(Failure::Invalid(text))) if text.contains(wrong.field()) => {}
            Ok(Some(Failure::Invalid(text))) => {
                report.find(Rule::Invalid, format!("{what}: the failure does not name the field: `{text}`"));
            }
            Ok(other) => {
                let got = other.map_or("it goes on".to_owned(), |failure| format!("{failure:?}"));
                report.find(Rule::Invalid, format!("{what}: {got}, where failure `invalid` would be right"));
            }
        }
    }
    // Of these only so much is asked: a plugin may do without its spec, and the API server drops what it does not know.
    let unknown = Wrong { path: format!("spec.{UNKNOWN}"), how: "is there", value: Some(json!({"a": [1]})) };
    for wrong in without_spec().into_iter().chain([unknown]) {
        let what = format!("{} {}", wrong.path, wrong.how);
        match pass(caller, world, &wrong)? {
            Err(finding) => {
                report.findings.push(Finding { text: format!("{what}: {}", finding.text), ..finding });
            }
            Ok(Some(Failure::Retry(text))) => report.find(
                Rule::Invalid,
                format!(
                    "{what}: failure `retry` ({text}), where only the user can help: `invalid` would be right"
                ),
            ),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The resource goes wrong and is then deleted. `world`: one whose deletion ends as long as it is right.
pub(super) fn check_deletion(
    caller: &Caller<'_>,
    world: &World<'_>,
    report: &mut Report,
) -> Result<(), Exit> {
    let Some(finalizer) = world.finalizer() else { return Ok(()) };
    let without = without_spec();
    let mut wrongs = by_schema(caller, world, DELETED_WRONGS_MAX);
    wrongs.retain(|wrong| !without.contains(wrong));
    for wrong in without.into_iter().chain(wrongs) {
        let mut world = world.clone();
        set(&mut world.primary, &wrong.path, wrong.value.clone());
        life::wrong_ends(caller, world, &wrong, finalizer, report)?;
    }
    Ok(())
}

/// Ways in which the spec can be wrong by the plugin's own schema.
fn by_schema(caller: &Caller<'_>, world: &World<'_>, count_max: usize) -> Vec<Wrong> {
    let Some(schema) = schema::of(caller.plugin.manifest(), &world.kind()) else { return Vec::new() };
    let only_spec = json!({
        "type": "object",
        "required": schema["required"],
        "properties": {"spec": schema["properties"]["spec"]},
    });
    schema::wrongs("", &world.primary, &only_spec, count_max)
}

fn without_spec() -> [Wrong; 2] {
    [
        Wrong { path: "spec".to_owned(), how: "is missing", value: None },
        Wrong { path: "spec".to_owned(), how: "is empty", value: Some(json!({})) },
    ]
}

/// One pass over the resource gone wrong: how it failed, or what it broke.
fn pass(
    caller: &Caller<'_>,
    world: &World<'_>,
    wrong: &Wrong,
) -> Result<Result<Option<Failure>, Finding>, Exit> {
    let mut world = world.clone();
    set(&mut world.primary, &wrong.path, wrong.value.clone());
    let mut scene = world.scene()?;
    let passed = caller.pass(&mut scene, Moment { now: &world.now(), seed: SEED });
    Ok(match passed.plan {
        Ok(plan) => Ok(plan.failure),
        Err(problem) => {
            let finding = Finding::stopped(&problem, "");
            // Half a decision about a resource that cannot be understood.
            Err(if matches!(finding.rule, Rule::Trap | Rule::Limits) {
                finding
            } else {
                Finding { rule: Rule::Invalid, ..finding }
            })
        }
    })
}

/// Sets or takes away the field of a path as the schema walk makes them.
fn set(object: &mut Value, path: &str, value: Option<Value>) {
    let mut steps: Vec<&str> = path.split('.').collect();
    let Some(last) = steps.pop() else { return };
    let mut at = object;
    for step in steps {
        if !at[step].is_object() {
            at[step] = json!({});
        }
        at = &mut at[step];
    }
    match (value, at.as_object_mut()) {
        (Some(value), Some(fields)) => {
            fields.insert(last.to_owned(), value);
        }
        (None, Some(fields)) => {
            fields.remove(last);
        }
        (_, None) => {}
    }
}
