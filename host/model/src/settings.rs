//! Settings: what the administrator says of one plugin, in `NAME.yaml` beside `NAME.wasm`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::grants::Grants;
use crate::limits::Limits;

/// Everything that may stand in `NAME.yaml`. Unknown or wrong keys are refused by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Given to the plugin as `desired.config`. An object.
    pub config: Value,
    /// Limits of each call.
    pub limits: Limits,
    /// Passes of this plugin at the same time, 1 to 100.
    pub concurrency: u32,
    /// Pace of retries.
    pub backoff: BackoffSettings,
    /// Seconds between resyncs, 10 to 86,400; none: as the manifest or else the host says.
    pub resync_seconds: Option<u64>,
    /// Whether actions are carried out.
    pub mode: Mode,
    /// What the plugin may do beyond its own kinds in the namespace of its primary.
    pub grants: Grants,
}

/// Pace of retries of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BackoffSettings {
    /// First delay, milliseconds.
    pub base_ms: u64,
    /// Longest delay, milliseconds.
    pub cap_ms: u64,
}

impl Default for BackoffSettings {
    /// 5 ms doubling, as controller-runtime's queue begins; up to 60 s rather than its 1,000 s, so that a repaired
    /// dependency is noticed within a minute.
    fn default() -> Self {
        Self { base_ms: 5, cap_ms: 60_000 }
    }
}

/// Whether a plugin's actions are carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// They are.
    #[default]
    Apply,
    /// What would be done is shown, and done when somebody has approved it; see [`crate::approval`].
    Plan,
    /// The plugin is loaded and watched, and no pass runs.
    Paused,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            config: Value::Object(serde_json::Map::new()),
            limits: Limits::default(),
            concurrency: 10,
            backoff: BackoffSettings::default(),
            resync_seconds: None,
            mode: Mode::default(),
            grants: Grants::default(),
        }
    }
}

/// Settings that cannot be used. The text names the key, and where YAML is broken the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

impl Settings {
    /// Reads and checks YAML text; an empty text is the default.
    pub fn parse(yaml: &str) -> Result<Self, SettingsError> {
        let settings: Option<Self> =
            serde_saphyr::from_str(yaml).map_err(|error| SettingsError(error.to_string()))?;
        let settings = settings.unwrap_or_default();
        settings.check().map_err(SettingsError)?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        if !self.config.is_object() {
            return Err("config: must be a mapping".to_owned());
        }
        self.limits.check()?;
        self.grants.check_form()?;
        if !(1..=100).contains(&self.concurrency) {
            return Err(format!(
                "concurrency: {} is out of bounds, 1 to 100 would be right",
                self.concurrency
            ));
        }
        let BackoffSettings { base_ms, cap_ms } = self.backoff;
        if !(1..=60_000).contains(&base_ms) {
            return Err(format!("backoff.baseMs: {base_ms} is out of bounds, 1 to 60000 would be right"));
        }
        if !(base_ms..=3_600_000).contains(&cap_ms) {
            return Err(format!(
                "backoff.capMs: {cap_ms} is out of bounds, baseMs to 3600000 would be right"
            ));
        }
        if let Some(seconds) = self.resync_seconds
            && !(10..=86_400).contains(&seconds)
        {
            return Err(format!("resyncSeconds: {seconds} is out of bounds, 10 to 86400 would be right"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;

    #[test]
    fn empty_text_means_the_defaults() {
        assert_eq!(Settings::parse("").unwrap(), Settings::default());
        assert_eq!(Settings::parse("{}").unwrap(), Settings::default());
        assert_eq!(Settings::parse("# nothing\n").unwrap(), Settings::default());
        // As the README promises them.
        let BackoffSettings { base_ms, cap_ms } = Settings::default().backoff;
        assert_eq!((Settings::default().concurrency, base_ms, cap_ms), (10, 5, 60_000));
    }

    #[test]
    fn what_is_given_is_taken_and_the_rest_defaults() {
        let settings = Settings::parse(
            "config: {a: 1}\nlimits: {cpuMs: 20}\nmode: paused\nconcurrency: 3\nbackoff: {capMs: 900}\n",
        )
        .unwrap();
        assert_eq!(
            (settings.concurrency, settings.backoff),
            (3, BackoffSettings { base_ms: 5, cap_ms: 900 })
        );
        assert_eq!(settings.config["a"], 1);
        assert_eq!(settings.limits, Limits { cpu_ms: 20, ..Limits::default() });
        assert_eq!(settings.mode, Mode::Paused);
        let settings =
            Settings::parse("grants:\n- kind: ConfigMap\n  namespaces: [team-a]\n- kind: Namespace\n")
                .unwrap();
        assert!(settings.grants.admit(&Kind::new("", "v1", "ConfigMap"), "team-a"));
        assert!(settings.grants.names(&Kind::new("", "v1", "Namespace")));
    }

    #[test]
    fn unknown_and_wrong_keys_are_refused_by_name() {
        for (yaml, part) in [
            ("conifg: {}", "conifg"),
            ("limits: {cpu: 1}", "`cpu`"),
            ("limits: {cpuMs: 0}", "limits.cpuMs: 0 is out of bounds"),
            ("concurrency: 0", "concurrency: 0"),
            ("backoff: {baseMs: 100, capMs: 5}", "backoff.capMs"),
            ("mode: sometimes", "sometimes"),
            ("config: [1]", "config: must be a mapping"),
            ("grants: [{kind: configmaps}]", "`configmaps` is no kind"),
            ("grants: [{kind: Deployment.}]", "`Deployment.` is no kind"),
            ("grants: [{kind: Pod, namespaces: [A b]}]", "grants[0].namespaces: `A b`"),
            ("grants: [{kind: Pod, namespace: a}]", "`namespace`"),
            ("config: {a: 1\nmode", "line"),
        ] {
            let error = Settings::parse(yaml).unwrap_err().to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
