//! What the user writes, what the status says, and the checks, for whoever makes them: a pass, or a webhook.

use std::time::Duration;

use pilothouse_sdk::{
    names::is_label,
    prelude::*,
    time::{Time, Timer},
};

/// Deletes pods now and then, so that it is known what happens then.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.interval) != has(self.schedule)", "message": "set exactly one of interval and schedule"}
]))]
pub struct ChaosPod {
    /// What the names of the pods begin with that may be deleted.
    #[schemars(length(min = 1, max = 253))]
    pub prefix: String,
    /// Time from run to run, at least 5s, for example `90s` or `1h30m`. It is counted from the creation of the resource.
    #[serde(default)]
    #[schemars(length(min = 2, max = 32), regex(pattern = "^([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$"))]
    #[schemars(extend("x-kubernetes-validations" = [
        {"rule": "duration(self) >= duration('5s')", "message": "use 5s or more"}
    ]))]
    pub interval: Option<String>,
    /// Times of runs as a crontab line of five fields, in UTC, for example `0 9-17 * * mon-fri`.
    #[serde(default)]
    #[schemars(length(min = 9, max = 256))]
    pub schedule: Option<String>,
    /// Pods that a run deletes at most.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub max_pods: u32,
    /// Namespaces, by their labels, whose pods may be deleted, at most 16; the resource's own if left out. It takes a
    /// grant of the administrator for Namespace, and one for Pod in each namespace besides the own.
    #[serde(default)]
    pub namespace_selector: Option<LabelSelector>,
    /// Choose and record, but delete nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Label of pods that are never deleted: a key, or `key=value`.
    #[serde(default)]
    #[schemars(length(max = 317), regex(pattern = "^[A-Za-z0-9./_-]+(=[A-Za-z0-9._-]*)?$"))]
    pub protected_label: Option<String>,
    /// No more runs until it is false again. What fell due meanwhile is not made up for.
    #[serde(default)]
    pub paused: bool,
}

fn one() -> u32 {
    1
}

/// Status of a resource, beside its condition `Ready`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChaosPodStatus {
    /// What says when the next run is: `every` and the interval, or the schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<String>,
    /// When the next run is; left out while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_time: Option<Time>,
    /// A run that has chosen its pods and not deleted them all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Run>,
    /// The last ten runs, the newest first.
    pub history: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// When its pods were chosen.
    pub time: Time,
    /// Pods that it deleted, or would have deleted.
    pub pods: Vec<Victim>,
    /// It deleted nothing.
    pub dry_run: bool,
}

/// A pod, and not another one of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Victim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl Victim {
    pub(crate) fn of(pod: &Object) -> Self {
        Self { namespace: pod.namespace().to_owned(), name: pod.name().to_owned(), uid: pod.uid().to_owned() }
    }
}

impl From<Victim> for Reference {
    fn from(Victim { namespace, name, uid }: Victim) -> Self {
        Self { kind: POD, namespace: Some(namespace), name, uid: Some(uid) }
    }
}

/// A run has three passes, which take less than a second each; and below this it is no chaos any more but an outage.
const INTERVAL_MIN: Duration = Duration::from_secs(5);

/// Checks a spec, and gives the timer that it says. `created` is the time of the resource's creation.
pub fn validate(spec: &ChaosPod, created: Time) -> Result<Timer, Problems> {
    let mut problems = Problems::default();
    problems.check(!spec.prefix.is_empty(), "spec.prefix", "is empty, which would mean every pod");
    problems.check(spec.max_pods > 0, "spec.maxPods", "use 1 or more; to delete nothing, set spec.paused");
    let label = "is neither a label's key nor `key=value`, so it would protect nothing";
    problems.check(spec.protected_label.as_deref().is_none_or(is_label), "spec.protectedLabel", label);
    let timer = match (&spec.interval, &spec.schedule) {
        (Some(text), None) => problems.take("spec.interval", Timer::every(text, INTERVAL_MIN, created)),
        (None, Some(line)) => problems.take("spec.schedule", Timer::cron(line)),
        _ => problems.take("spec", Err("set exactly one of interval and schedule".to_owned())),
    };
    timer.filter(|_| problems.is_empty()).ok_or(problems)
}
