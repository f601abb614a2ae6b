//! Several passes one after the other, each over what those before it left: to rest, and to the end.

use pilothouse_model::action::Failure;
use pilothouse_model::plan::Plan;

use crate::cli::exit::Exit;
use crate::cli::offline::pass::{Caller, Moment};
use crate::cli::render::SEED;

use super::difference;
use super::finding::{Finding, Rule};
use super::schema::Wrong;
use super::suite::{Report, makes};
use super::world::{Change, World, short};

/// Passes within which a plugin comes to rest while nobody else does anything. Real ones need two or three.
const REST_PASSES_MAX: usize = 10;

/// Passes within which a plugin lets a resource go whose children are gone as soon as they are deleted.
const END_PASSES_MAX: usize = 10;

/// Passes until one changes nothing. Each is a second later and has another seed: whoever writes down the time or a
/// random number does not come to rest. The world at rest, if it came to that.
pub(super) fn comes_to_rest<'a>(
    caller: &Caller<'_>,
    mut world: World<'a>,
    report: &mut Report,
) -> Result<Option<World<'a>>, Exit> {
    let mut changes = Vec::new();
    for (count, seed) in (0..REST_PASSES_MAX).zip(SEED..) {
        let Some(plan) = pass(caller, &world, seed, &format!("pass {}: ", count + 1), report)? else {
            return Ok(None);
        };
        changes = world.carry_out(&plan);
        if changes.is_empty() {
            report.passes = Some(count);
            return Ok(Some(world));
        }
        world.wait(0);
    }
    let only_status = changes.iter().all(|change| matches!(change, Change::Status(_)));
    let rule = if only_status { Rule::Status } else { Rule::Idempotence };
    let listed = changes.iter().map(text).collect::<Vec<_>>().join("\n  ");
    report.find(rule, format!("pass {REST_PASSES_MAX} over its own results still changes:\n  {listed}"));
    Ok(None)
}

/// How a deletion ended.
enum End {
    Released,
    /// How the last pass ended.
    Held(Option<Failure>, String),
    /// A finding says what was wrong with a pass.
    Found,
}

/// Passes from the resource's deletion to its release; whether it came to that.
pub(super) fn ends(caller: &Caller<'_>, world: World<'_>, report: &mut Report) -> Result<bool, Exit> {
    match end(caller, world, "", report)? {
        End::Released => Ok(true),
        End::Found => Ok(false),
        End::Held(_, last) => {
            report.find(
                Rule::Finalizing,
                format!("not released after {END_PASSES_MAX} passes, so the resource would never go; the last one: {last}"),
            );
            Ok(false)
        }
    }
}

/// The same for a resource that went wrong before it was deleted. A plugin that does not need to understand it lets it go;
/// one that does says which field it is, and with the finalizer the other way out, as `kubectl delete` waits in silence.
pub(super) fn wrong_ends(
    caller: &Caller<'_>,
    world: World<'_>,
    wrong: &Wrong,
    finalizer: &str,
    report: &mut Report,
) -> Result<(), Exit> {
    let what = format!("{} {}, then deleted: ", wrong.path, wrong.how);
    match end(caller, world, &what, report)? {
        End::Held(Some(Failure::Invalid(text)), _) if text.contains(wrong.field()) && text.contains(finalizer) => {}
        End::Held(_, last) => report.find(
            Rule::Finalizing,
            format!(
                "{what}it never goes: {last}, where `release` would be right, or failure `invalid` that names the field and \
                 the finalizer {finalizer}, which the user may take off"
            ),
        ),
        End::Released | End::Found => {}
    }
    Ok(())
}

fn end(caller: &Caller<'_>, mut world: World<'_>, what: &str, report: &mut Report) -> Result<End, Exit> {
    world.delete();
    let mut held = End::Found;
    for (count, seed) in (0..END_PASSES_MAX).zip(SEED..) {
        let when = format!("{what}pass {} of the deletion: ", count + 1);
        let Some(plan) = pass(caller, &world, seed, &when, report)? else { return Ok(End::Found) };
        let new = plan.writes.iter().find(|write| makes(&write.operation) && !world.has(&write.target));
        if let Some(write) = new {
            let child = short(&write.target);
            report.find(
                Rule::Finalizing,
                format!("{when}actions[{}] creates {child} while the resource is being deleted", write.index),
            );
            return Ok(End::Found);
        }
        world.carry_out(&plan);
        if plan.release && plan.failure.is_none() {
            return Ok(End::Released);
        }
        let last = match &plan.failure {
            Some(failure) => format!("{failure:?}"),
            None => format!("no release, {} other actions", plan.writes.len()),
        };
        held = End::Held(plan.failure, last);
        world.wait(plan.requeue_after_ms.unwrap_or(0));
    }
    Ok(held)
}

/// One pass that comes to a plan; a finding if it does not.
fn pass(
    caller: &Caller<'_>,
    world: &World<'_>,
    seed: u64,
    when: &str,
    report: &mut Report,
) -> Result<Option<Plan>, Exit> {
    let mut scene = world.scene()?;
    let passed = caller.pass(&mut scene, Moment { now: &world.now(), seed });
    report.count(&passed);
    match passed.plan {
        Ok(plan) => Ok(Some(plan)),
        Err(problem) => {
            report.findings.push(Finding::stopped(&problem, when));
            Ok(None)
        }
    }
}

fn text(change: &Change) -> String {
    match change {
        Change::Whole(text) => text.clone(),
        Change::Fields(of, differences) => format!("{of}: {}", difference::changed(differences)),
        Change::Status(differences) => difference::changed(differences),
    }
}
