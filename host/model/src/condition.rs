//! The status of a primary: merges what the plugin wants with the host's own condition and with what is there, and
//! says which patch that is, if any. Conditions keep their `lastTransitionTime` while their status is the same, so a
//! plugin that knows no clock cannot get it wrong and an unchanged state is never written again.

use serde_json::{Map, Value, json};

use crate::merge_patch;

/// Type of the host's own condition.
pub const RECONCILED: &str = "Reconciled";
/// Conditions that one status may hold: far more than any operator has.
pub const CONDITIONS_MAX: usize = 64;

/// Why the last pass ended as it did: the closed list of reasons of the condition [`RECONCILED`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// All actions were carried out.
    Succeeded,
    /// The plugin says that the resource must be changed.
    InvalidResource,
    /// The plugin says that something is wrong and wants to try again.
    PluginFailed,
    /// The plugin trapped.
    PluginTrapped,
    /// The plugin went over one of its limits.
    LimitExceeded,
    /// The plugin asked for something that its manifest or the contract does not allow.
    OutcomeRefused,
    /// Some writes failed; the message names the first.
    WriteFailed,
    /// Children wait for others, by their update strategy; the message names the first of each. Nothing is wrong.
    Updating,
    /// The primary goes when its children have gone that no owner reference ties to it; the message names one.
    CleaningUp,
    /// A bug of the host, or the host is shutting down.
    HostFault,
    /// The annotation `pilothouse.dev/paused` says that nothing be done; nothing was looked at.
    Paused,
    /// Plan mode: the message names the hash of a plan that waits to be approved.
    AwaitingApproval,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Succeeded,
        Self::InvalidResource,
        Self::PluginFailed,
        Self::PluginTrapped,
        Self::LimitExceeded,
        Self::OutcomeRefused,
        Self::WriteFailed,
        Self::Updating,
        Self::CleaningUp,
        Self::HostFault,
        Self::Paused,
        Self::AwaitingApproval,
    ];

    /// Something went wrong. What somebody asked for is no failure, nor what is on its way, though the resource is not
    /// reconciled.
    pub fn is_failure(self) -> bool {
        use Reason::{AwaitingApproval, CleaningUp, Paused, Succeeded, Updating};
        !matches!(self, Succeeded | Updating | CleaningUp | Paused | AwaitingApproval)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::InvalidResource => "InvalidResource",
            Self::PluginFailed => "PluginFailed",
            Self::PluginTrapped => "PluginTrapped",
            Self::LimitExceeded => "LimitExceeded",
            Self::OutcomeRefused => "OutcomeRefused",
            Self::WriteFailed => "WriteFailed",
            Self::Updating => "Updating",
            Self::CleaningUp => "CleaningUp",
            Self::HostFault => "HostFault",
            Self::Paused => "Paused",
            Self::AwaitingApproval => "AwaitingApproval",
        }
    }
}

/// The host's own condition on a resource: `Reconciled` True with [`Reason::Succeeded`], False with the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconciled {
    /// Why.
    pub reason: Reason,
    /// For people; empty if all is well.
    pub message: String,
}

impl Reconciled {
    /// All is well.
    pub fn succeeded() -> Self {
        Self { reason: Reason::Succeeded, message: String::new() }
    }

    fn to_value(&self) -> Value {
        let status = if self.reason == Reason::Succeeded { "True" } else { "False" };
        json!({"type": RECONCILED, "status": status, "reason": self.reason.as_str(), "message": self.message})
    }
}

/// Checks the `conditions` of a status that a plugin returned; says what is wrong.
pub fn check(status: &Map<String, Value>) -> Result<(), String> {
    let Some(conditions) = status.get("conditions") else { return Ok(()) };
    let Some(conditions) = conditions.as_array() else {
        return Err("status.conditions: is no list".to_owned());
    };
    if conditions.len() > CONDITIONS_MAX {
        return Err(format!("status.conditions: {} of them, at most {CONDITIONS_MAX}", conditions.len()));
    }
    for (at, condition) in conditions.iter().enumerate() {
        let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default();
        let goes = is_removal(condition);
        if text("type").is_empty() || !goes && text("reason").is_empty() {
            return Err(format!("status.conditions[{at}]: type and reason must not be empty"));
        }
        if text("type") == RECONCILED {
            return Err(format!("status.conditions[{at}].type: `{RECONCILED}` is the host's own"));
        }
        if condition.get("message").is_some_and(|message| !message.is_string() && !message.is_null()) {
            return Err(format!("status.conditions[{at}].message: must be text"));
        }
        if !goes && !["True", "False", "Unknown"].contains(&text("status")) {
            return Err(format!("status.conditions[{at}].status: must be True, False or Unknown"));
        }
        if conditions[..at].iter().any(|other| other.get("type") == condition.get("type")) {
            return Err(format!("status.conditions[{at}].type: `{}` is named twice", text("type")));
        }
    }
    Ok(())
}

/// `"status": null`: the plugin takes back a condition that it, or an older version of it, once set.
fn is_removal(condition: &Value) -> bool {
    condition.get("status").is_some_and(Value::is_null)
}

/// The JSON merge patch that takes the status from `live` to what plugin and host want, or none if nothing changes.
/// The patch is that of the status alone, not wrapped in `status`.
///
/// - `wanted` none: the plugin's part stays as it is.
/// - Fields that `wanted` leaves out are removed; conditions are merged by `type`, other owners' stay. One whose
///   status is null is removed.
/// - `observedGeneration` is set to `generation` in each condition written; in the status only if the plugin had its
///   say, as otherwise the rest of the status (a `Ready` of before, perhaps) would seem to be about that generation.
/// - `now` (RFC 3339) is the `lastTransitionTime` of a condition whose status changed.
pub fn patch(
    live: &Value,
    wanted: Option<&Map<String, Value>>,
    host: Option<&Reconciled>,
    generation: i64,
    now: &str,
) -> Option<Value> {
    let empty = Map::new();
    let live = live.as_object().unwrap_or(&empty);
    let mut target = wanted.unwrap_or(live).clone();
    let live_conditions = live.get("conditions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let asked = wanted.and_then(|wanted| wanted.get("conditions")).and_then(Value::as_array);
    let asked = asked.into_iter().flatten().cloned().chain(host.map(Reconciled::to_value));

    let mut conditions = live_conditions.to_vec();
    for mut condition in asked {
        let same = conditions.iter().position(|other| other.get("type") == condition.get("type"));
        if is_removal(&condition) {
            same.map(|at| conditions.remove(at));
            continue;
        }
        settle(&mut condition, same.map(|at| &conditions[at]), generation, now);
        match same {
            Some(at) => conditions[at] = condition,
            None => conditions.push(condition),
        }
    }
    if conditions.is_empty() {
        target.remove("conditions");
    } else {
        target.insert("conditions".to_owned(), Value::Array(conditions));
    }
    if wanted.is_some() || host.is_none_or(|host| host.reason == Reason::Succeeded) {
        target.insert("observedGeneration".to_owned(), json!(generation));
    }
    merge_patch::between(&Value::Object(live.clone()), &Value::Object(target))
}

/// Gives a condition the fields that the host keeps.
fn settle(condition: &mut Value, live: Option<&Value>, generation: i64, now: &str) {
    let Some(fields) = condition.as_object_mut() else { return };
    let since = live
        .filter(|live| live.get("status") == fields.get("status"))
        .and_then(|live| live.get("lastTransitionTime"))
        .cloned();
    fields.insert("lastTransitionTime".to_owned(), since.unwrap_or_else(|| json!(now)));
    fields.insert("observedGeneration".to_owned(), json!(generation));
    if !fields.get("message").is_some_and(Value::is_string) {
        fields.insert("message".to_owned(), json!(""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge_patch::apply;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn first_status_then_quiet() {
        let wanted = object(json!({
            "readyReplicas": 3, "gone": null,
            "conditions": [{"type": "Ready", "status": "True", "reason": "AllReplicasReady"}]
        }));
        let host = Reconciled::succeeded();
        let live = Value::Null;
        let change = patch(&live, Some(&wanted), Some(&host), 4, "T1").unwrap();
        let stored = apply(&live, &change);
        assert_eq!(
            stored,
            json!({
                "readyReplicas": 3, "observedGeneration": 4,
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "AllReplicasReady", "message": "",
                     "lastTransitionTime": "T1", "observedGeneration": 4},
                    {"type": "Reconciled", "status": "True", "reason": "Succeeded", "message": "",
                     "lastTransitionTime": "T1", "observedGeneration": 4}
                ]
            })
        );
        assert_eq!(patch(&stored, Some(&wanted), Some(&host), 4, "T2"), None);
        assert_eq!(patch(&stored, None, Some(&host), 4, "T2"), None);
    }

    #[test]
    fn times_move_with_the_status_alone_and_other_conditions_stay() {
        let live = json!({
            "observedGeneration": 1, "old": 1,
            "conditions": [
                {"type": "Foreign", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "T0"},
                {"type": "Ready", "status": "False", "reason": "Provisioning", "message": "0/3",
                 "lastTransitionTime": "T0", "observedGeneration": 1}
            ]
        });
        let ready = |status: &str, message: &str| {
            object(json!({"conditions": [
                {"type": "Ready", "status": status, "reason": "R", "message": message, "lastTransitionTime": "lie"}
            ]}))
        };
        let stored = apply(&live, &patch(&live, Some(&ready("False", "1/3")), None, 1, "T1").unwrap());
        assert_eq!(stored["conditions"][1]["lastTransitionTime"], "T0");
        assert_eq!(stored["conditions"][1]["message"], "1/3");
        assert_eq!(stored["conditions"][0]["type"], "Foreign");
        assert_eq!(stored.get("old"), None);
        let stored = apply(&live, &patch(&live, Some(&ready("True", "")), None, 1, "T1").unwrap());
        assert_eq!(stored["conditions"][1]["lastTransitionTime"], "T1");
    }

    #[test]
    fn a_trap_after_an_edit_does_not_pass_an_old_status_off_as_of_the_new_generation() {
        let live = json!({
            "observedGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "T0", "observedGeneration": 1}]
        });
        let trapped = Reconciled { reason: Reason::PluginTrapped, message: "unreachable".to_owned() };
        let stored = apply(&live, &patch(&live, None, Some(&trapped), 2, "T1").unwrap());
        assert_eq!(stored["observedGeneration"], 1);
        assert_eq!(stored["conditions"][1]["observedGeneration"], 2);
        let stored = apply(&stored, &patch(&stored, None, Some(&Reconciled::succeeded()), 2, "T2").unwrap());
        assert_eq!(stored["observedGeneration"], 2);
    }

    #[test]
    fn a_plugin_can_take_back_a_condition_of_its_older_version() {
        let live = json!({"observedGeneration": 1, "conditions": [
            {"type": "Old", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "T0"},
            {"type": "Foreign", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "T0"}
        ]});
        let wanted = object(json!({"conditions": [{"type": "Old", "status": null}]}));
        check(&wanted).unwrap();
        let stored = apply(&live, &patch(&live, Some(&wanted), None, 1, "T1").unwrap());
        assert_eq!(stored["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(stored["conditions"][0]["type"], "Foreign");
        assert_eq!(patch(&stored, Some(&wanted), None, 1, "T2"), None);
    }

    #[test]
    fn nulls_in_lists_are_absent_and_so_not_written_for_ever() {
        let wanted = object(json!({"members": [{"name": "a", "since": null}],
            "conditions": [{"type": "A", "status": "True", "reason": "R", "message": null}]}));
        check(&wanted).unwrap();
        let change = patch(&Value::Null, Some(&wanted), None, 1, "T1").unwrap();
        assert_eq!(change["members"], json!([{"name": "a"}]));
        assert_eq!(change["conditions"][0]["message"], "");
        assert_eq!(patch(&apply(&Value::Null, &change), Some(&wanted), None, 1, "T2"), None);
    }

    #[test]
    fn a_plugin_cannot_forge_or_garble_conditions() {
        for (conditions, part) in [
            (json!([{"type": "Reconciled", "status": "True", "reason": "X"}]), "the host's own"),
            (json!([{"type": "Reconciled", "status": null}]), "the host's own"),
            (json!([{"type": "A", "status": "true", "reason": "X"}]), "True, False or Unknown"),
            (json!([{"type": "A", "status": "True", "reason": "X", "message": {}}]), "must be text"),
            (json!([{"type": "A", "status": "True"}]), "must not be empty"),
            (json!({}), "is no list"),
            (
                json!([{"type": "A", "status": "True", "reason": "X"}, {"type": "A", "status": "True", "reason": "X"}]),
                "named twice",
            ),
        ] {
            let problem = check(&object(json!({"conditions": conditions}))).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
