//! All that is asked of a plugin about one case. The rules are in the order in which their answers mean something: a plugin
//! that traps on the case itself is not asked what it does afterwards.

use std::collections::BTreeSet;

use pilothouse_model::action::{Failure, Outcome};
use pilothouse_model::kind::Reference;
use pilothouse_model::limits::Limits;
use pilothouse_model::object::Object;
use pilothouse_model::plan::{Operation, Plan};
use pilothouse_sandbox::Usage;
use serde_json::{Map, Value, json};

use crate::cli::exit::Exit;
use crate::cli::offline::pass::{Caller, Moment, Passed};
use crate::cli::offline::readable;
use crate::cli::render::SEED;

use super::case::{Case, CaseFile, Expected, NOW};
use super::finding::{Finding, Rule};
use super::world::{World, short};
use super::{difference, invalid, life, outcome, schema};

/// What was found out about one case.
pub(super) struct Report {
    /// `Kind namespace/name`
    pub(super) name: String,
    pub(super) findings: Vec<Finding>,
    /// The outcome as a case has it, to be recorded; none if the pass was stopped.
    pub(super) outcome: Option<Value>,
    /// Passes that it took to come to rest.
    pub(super) passes: Option<usize>,
    /// The most that a pass took.
    pub(super) used: Usage,
}

impl Report {
    pub(super) fn find(&mut self, rule: Rule, text: impl Into<String>) {
        self.findings.push(Finding::new(rule, text));
    }

    pub(super) fn count(&mut self, passed: &Passed) {
        let Usage { cpu, memory_bytes_peak, .. } = passed.calls.usage;
        self.used.cpu = self.used.cpu.max(cpu);
        self.used.memory_bytes_peak = self.used.memory_bytes_peak.max(memory_bytes_peak);
    }
}

/// What becomes of the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It is compared with the one that the case expects.
    Compare,
    /// It will be the one that the case expects.
    Record,
}

/// Asks everything about one case.
pub(super) fn check(
    caller: &Caller<'_>,
    file: &CaseFile,
    case: &Case,
    purpose: Purpose,
) -> Result<Report, Exit> {
    let manifest = caller.plugin.manifest();
    let told = case.expected.as_ref();
    let now = told.and_then(|told| told.now.as_deref()).unwrap_or(NOW);
    let config = told.and_then(|told| told.config.as_ref()).map(Value::to_string);
    let caller = Caller { config: config.as_deref().unwrap_or(caller.config), ..*caller };
    let world = World::new(manifest, &case.primary, &file.objects, file.cases.len() == 1, now)?;

    let mut scene = world.scene()?;
    let passed = caller.pass(&mut scene, Moment { now: &world.now(), seed: SEED });
    let mut report = Report {
        name: scene.name(),
        findings: Vec::new(),
        outcome: None,
        passes: None,
        used: Usage::default(),
    };
    report.count(&passed);
    if let Some(given) = &passed.outcome {
        let recorded = recorded(readable::document(&scene.snapshot.primary, given), case);
        if purpose == Purpose::Compare {
            expected(told, &recorded, &mut report);
        }
        report.outcome = Some(recorded);
    }
    let plan = match &passed.plan {
        Ok(plan) => plan,
        Err(problem) => {
            report.findings.push(Finding::stopped(problem, ""));
            return Ok(report);
        }
    };

    determinism(&caller, &world, passed.outcome.as_ref(), &mut report)?;
    names(&caller, &world, plan, &mut report)?;
    status(&caller, &world, plan, &mut report);
    let refused = matches!(plan.failure, Some(Failure::Invalid(_)));
    if !refused {
        resource(&caller, &world, &mut report);
    }
    if scene.deleting {
        if life::ends(&caller, world.clone(), &mut report)? {
            invalid::check_deletion(&caller, &world, &mut report)?;
        }
    } else {
        let rested = life::comes_to_rest(&caller, world.clone(), &mut report)?;
        if let Some(rested) = rested
            && scene.controller.finalizer.is_some()
            && life::ends(&caller, rested.clone(), &mut report)?
        {
            invalid::check_deletion(&caller, &rested, &mut report)?;
        }
        if !refused {
            invalid::check(&caller, &world, &mut report)?;
        }
    }
    Ok(report)
}

fn expected(told: Option<&Expected>, got: &Value, report: &mut Report) {
    let Some(told) = told else {
        return report.find(Rule::Expected, "the file says no outcome: `--record` writes the one of now");
    };
    if let Some(text) = outcome::listed(&told.outcome, got) {
        report.find(Rule::Expected, format!("by {}:\n  {text}", told.place));
    }
}

/// The outcome with what else the case said of the pass.
fn recorded(mut outcome: Value, case: &Case) -> Value {
    if let Some(told) = &case.expected {
        if let Some(now) = &told.now {
            outcome["now"] = json!(now);
        }
        if let Some(config) = &told.config {
            outcome["config"] = config.clone();
        }
    }
    outcome
}

/// Once more, and once more with twice the limits: nothing that a plugin can see may have changed.
fn determinism(
    caller: &Caller<'_>,
    world: &World<'_>,
    first: Option<&Outcome>,
    report: &mut Report,
) -> Result<(), Exit> {
    let Limits { cpu_ms, memory_bytes, .. } = *caller.limits;
    let memory_bytes = (memory_bytes * 2).min(Limits::MEMORY_BYTES_MAX);
    let doubled = Limits { cpu_ms: cpu_ms * 2, memory_bytes, ..*caller.limits };
    for (limits, when) in [(caller.limits, "the same request again"), (&doubled, "with twice the limits")] {
        let mut scene = world.scene()?;
        let moment = Moment { now: &world.now(), seed: SEED };
        let again = Caller { limits, ..*caller }.pass(&mut scene, moment);
        report.count(&again);
        if let Some(listed) = another(&scene.snapshot.primary, first, again.outcome.as_ref()) {
            report.find(Rule::Determinism, format!("{when} gives another outcome:\n  {listed}"));
            break;
        }
    }
    Ok(())
}

/// How two outcomes of one request differ, if they do.
fn another(primary: &Object, first: Option<&Outcome>, again: Option<&Outcome>) -> Option<String> {
    if first == again {
        return None;
    }
    let document = |outcome: Option<&Outcome>| {
        outcome.map_or(Value::Null, |outcome| readable::document(primary, outcome))
    };
    let differences = difference::between("", &document(first), &document(again));
    if differences.is_empty() {
        return Some("the JSON texts differ in the order or the spelling of fields".to_owned());
    }
    Some(difference::listed(&differences))
}

/// Children do not depend on the seed, and those of a resource of another name are others.
fn names(caller: &Caller<'_>, world: &World<'_>, plan: &Plan, report: &mut Report) -> Result<(), Exit> {
    let own = children(plan);
    let mut scene = world.scene()?;
    let other = caller.pass(&mut scene, Moment { now: &world.now(), seed: SEED + 1 });
    if let Ok(other) = &other.plan
        && let Some(name) = children(other).symmetric_difference(&own).next()
    {
        report.find(
            Rule::Names,
            format!("{} is among the children with one seed and not with another: it would be made anew in each pass", short(name)),
        );
    }
    let renamed = world.renamed();
    let mut scene = renamed.scene()?;
    // It may refuse a longer name; then there is nothing that could collide.
    let Ok(plan) = caller.pass(&mut scene, Moment { now: &renamed.now(), seed: SEED }).plan else {
        return Ok(());
    };
    for both in children(&plan).intersection(&own) {
        // A name that the user or another object gave is their business.
        if !renamed.says(&both.name) {
            let (one, two) = (world.name(), renamed.name());
            report.find(
                Rule::Names,
                format!("{} is a child of {one} and of {two} alike: a name made of the resource's own would be right", short(both)),
            );
        }
    }
    Ok(())
}

fn children(plan: &Plan) -> BTreeSet<Reference> {
    let made = plan.writes.iter().filter(|write| makes(&write.operation));
    made.map(|write| write.target.clone()).collect()
}

/// Whether an operation creates what is not there.
pub(super) fn makes(operation: &Operation) -> bool {
    matches!(operation, Operation::Apply { .. } | Operation::GenerateSecret { .. })
}

fn status(caller: &Caller<'_>, world: &World<'_>, plan: &Plan, report: &mut Report) {
    let Some(status) = &plan.status else { return };
    let generation = &world.primary["metadata"]["generation"];
    if status.get("observedGeneration").is_some_and(|said| said != generation) {
        let said = &status["observedGeneration"];
        let text =
            format!("status.observedGeneration: {said}: the host writes it, {generation} here: leave it out");
        report.find(Rule::Status, text);
    }
    let kind = world.kind();
    let Some(crd) = caller.plugin.manifest().crd(&kind) else { return };
    let version = crd["spec"]["versions"].as_array().into_iter().flatten();
    let version = version.into_iter().find(|version| version["name"] == *kind.version);
    if !version.is_some_and(|version| version["subresources"]["status"].is_object()) {
        report.find(
            Rule::Status,
            "the CRD has no status subresource: `subresources: {status: {}}` would be right",
        );
    }
    if let Some(schema) = schema::of(caller.plugin.manifest(), &kind) {
        let schema = &schema["properties"]["status"];
        let own = completed(status, &world.now());
        for problem in schema::problems("status", &pilothouse_model::merge_patch::without_nulls(&own), schema)
        {
            report.find(Rule::Status, problem);
        }
    }
}

/// The status with what the host adds to its conditions, and without those that it takes away.
fn completed(status: &Map<String, Value>, now: &str) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| !condition["status"].is_null());
        for condition in conditions {
            for (field, value) in [("message", ""), ("lastTransitionTime", now)] {
                if condition[field].is_null() {
                    condition[field] = json!(value);
                }
            }
        }
    }
    Value::Object(status)
}

/// A case shows what a cluster can have.
fn resource(caller: &Caller<'_>, world: &World<'_>, report: &mut Report) {
    let Some(schema) = schema::of(caller.plugin.manifest(), &world.kind()) else { return };
    for field in ["spec", "status"] {
        let (value, schema) = (&world.primary[field], &schema["properties"][field]);
        if !value.is_null() && schema.is_object() {
            for problem in schema::problems(field, value, schema) {
                report.find(Rule::Schema, format!("of the resource: {problem}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_model::action::Action;

    use super::*;

    #[test]
    fn an_outcome_that_differs_in_one_byte_is_another_one() {
        let primary = json!({"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "a"}});
        let primary = Object::from_value(&primary).unwrap();
        let outcome =
            |status: &str| Outcome { actions: vec![Action::SetStatus(status.to_owned())], failure: None };
        let (one, other, spaced) = (outcome(r#"{"a":1}"#), outcome(r#"{"a":2}"#), outcome(r#"{"a": 1}"#));
        let said = |again: Option<&Outcome>| another(&primary, Some(&one), again).unwrap_or_default();
        assert_eq!(said(Some(&one)), "");
        assert!(said(Some(&other)).starts_with("actions[0].set-status.a\n"), "{}", said(Some(&other)));
        assert!(said(Some(&spaced)).contains("the spelling"), "{}", said(Some(&spaced)));
        assert!(said(None).contains("got:      null"), "{}", said(None));
    }
}
