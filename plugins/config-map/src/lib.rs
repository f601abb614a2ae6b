//! One ConfigMap for each Greeting: the smallest useful plugin.

use pilothouse_sdk::prelude::*;

/// A greeting, kept in a ConfigMap of the same name.
#[derive(Deserialize, JsonSchema)]
pub struct Greeting {
    /// What to say.
    #[schemars(length(min = 1, max = 1024))]
    text: String,
}

impl Reconciler for Greeting {
    const PRIMARY: Resource = Resource::namespaced("example.com", "v1alpha1", "Greeting", "greetings");
    type Status = NoStatus;

    fn controller() -> Controller {
        Controller::new(Crd::of::<Self>().column("Text", Column::Text, ".spec.text").age()).owns(CONFIG_MAP)
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        actions.apply(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": pass.name()},
            "data": {"text": pass.spec.text},
        }));

        let ready = match pass.child(CONFIG_MAP, pass.name()) {
            Some(_) => Condition::yes("Ready", "Written", "the ConfigMap is there"),
            None => Condition::no("Ready", "Writing", "the ConfigMap is not there yet"),
        };
        actions.push(pass.set_status(&NoStatus {}).condition(ready));
        Ok(())
    }
}

export!(Greeting);
