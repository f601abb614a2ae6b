//! The plugin `{{name}}`: a ConfigMap for each {{kind}}.

use pilothouse_sdk::prelude::*;

/// A message, kept in a ConfigMap.
#[derive(Deserialize, JsonSchema)]
pub struct {{kind}}Spec {
    /// What to say.
    #[schemars(length(min = 1, max = 1024))]
    message: String,
}

/// What there is.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct {{kind}}Status {
    /// Name of the ConfigMap.
    config_map: String,
}

impl Reconciler for {{kind}}Spec {
    {{primary}}
    type Status = {{kind}}Status;

    /// What the plugin is and may touch: the host allows it nothing else.
    fn controller() -> Controller {
        let crd = Crd::of::<Self>()
            .column("Message", Column::Text, ".spec.message")
            .age();
        Controller::new(crd).owns(CONFIG_MAP)
    }

    /// One pass: says what shall be there. The host finds out what of that has to be written.
    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        if pass.spec.message.trim().is_empty() {
            let problem = "is blank, a text would be right";
            return Err(Failure::invalid("spec.message", problem));
        }
        let config_map = format!("{}-message", pass.name());
        actions.apply(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config_map},
            "data": {"message": pass.spec.message},
        }));

        let ready = match pass.child(CONFIG_MAP, &config_map) {
            Some(_) => Condition::yes("Ready", "Written", "the ConfigMap is there"),
            None => Condition::no("Ready", "Writing", "the ConfigMap is not there yet"),
        };
        let status = {{kind}}Status { config_map };
        actions.push(pass.set_status(&status).condition(ready));
        Ok(())
    }
}

export!({{kind}}Spec);
