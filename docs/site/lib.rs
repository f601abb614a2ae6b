//! Sites: a page, and so many pods that serve it.

use pilothouse_sdk::prelude::*;

/// A page, served by some pods.
#[derive(Deserialize, JsonSchema)]
pub struct SiteSpec {
    /// HTML of the page.
    #[schemars(length(min = 1, max = 65536))]
    page: String,
    /// Number of pods.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    replicas: i32,
}

fn one() -> i32 {
    1
}

/// What there is.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    /// Where it is served in the cluster.
    address: String,
    /// Number of pods.
    replicas: i64,
}

impl Reconciler for SiteSpec {
    const PRIMARY: Resource = Resource::namespaced("example.com", "v1alpha1", "Site", "sites");
    type Status = SiteStatus;

    fn controller() -> Controller {
        let crd = Crd::of::<Self>()
            .scale(".spec.replicas", ".status.replicas")
            .column("Pods", Column::Integer, ".spec.replicas")
            .column("Address", Column::Text, ".status.address")
            .age();
        Controller::new(crd).owns(CONFIG_MAP).owns(DEPLOYMENT).owns(SERVICE)
    }

    fn reconcile(pass: &Pass<Self>, actions: &mut Actions) -> Result<(), Failure> {
        let (name, spec) = (pass.name(), &pass.spec);
        if !spec.page.contains('<') {
            return Err(Failure::invalid("spec.page", "is no HTML, as `<h1>Hello</h1>` would be"));
        }
        actions.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"index.html": spec.page},
        }));
        let deployment = deployment(name, spec.replicas);
        actions.apply(deployment.clone());
        actions.apply(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"site": name}, "ports": [{"port": 80, "targetPort": 80}]},
        }));

        let live = pass.child_as::<views::Deployment<'_>>(name);
        let status = SiteStatus {
            address: format!("http://{name}.{}", pass.namespace()),
            replicas: live.map_or(0, |live| live.current()),
        };
        let ready = views::Deployment::ready(live, &deployment);
        actions.push(pass.set_status(&status).condition(ready));
        Ok(())
    }
}

fn deployment(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"site": name}},
            "template": {
                "metadata": {"labels": {"site": name}},
                "spec": {
                    "containers": [{
                        "name": "nginx", "image": "nginx:1.29",
                        "volumeMounts": [{"name": "page", "mountPath": "/usr/share/nginx/html"}],
                    }],
                    "volumes": [{"name": "page", "configMap": {"name": name}}],
                },
            },
        },
    })
}

export!(SiteSpec);
