//! `deploy/monitoring`: what Grafana and Prometheus are given is well formed, and asks for nothing that the host does not
//! export.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use pilothouse_harness::{Host, Metrics, workspace};
use promql_parser::{
    parser::{self, Expr, LabelModifier, VectorSelector},
    util::{ExprVisitor, walk_expr},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    scripted::{comes_to, config_map, perform, scripted},
    stamped::{counts, write},
    support::{World, run},
};

/// Labels that come from Prometheus itself, by the names of the operator.
const OF_PROMETHEUS: [&str; 4] = ["instance", "job", "namespace", "pod"];

fn monitoring(file: &str) -> PathBuf {
    workspace::root().join("deploy/monitoring").join(file)
}

/// Every expression of the dashboard and of the rules, with where it stands.
fn expressions() -> Vec<(String, String)> {
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(monitoring("pilothouse.json")).unwrap()).unwrap();
    let rules: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(monitoring("rules.yaml")).unwrap()).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            // As Grafana fills them in.
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$__rate_interval", "5m").replace("$controller", ".*");
            found.push((format!("panel {}", panel["title"]), expression));
        }
    }
    for rule in rules["spec"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
    {
        found.push((format!("alert {}", rule["alert"]), rule["expr"].as_str().unwrap().to_owned()));
    }
    assert!(found.len() > 40, "{} expressions", found.len());
    found
}

/// What an expression asks for: metrics, and the labels that are spoken of anywhere in it.
#[derive(Default)]
struct Asked {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

impl Asked {
    fn select(&mut self, selector: &VectorSelector) {
        self.metrics.extend(selector.name.clone());
        self.labels.extend(selector.matchers.matchers.iter().map(|matcher| matcher.name.clone()));
    }

    fn modify(&mut self, modifier: Option<&LabelModifier>) {
        if let Some(LabelModifier::Include(labels) | LabelModifier::Exclude(labels)) = modifier {
            self.labels.extend(labels.labels.iter().cloned());
        }
    }
}

impl ExprVisitor for Asked {
    type Error = String;

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, String> {
        match expression {
            Expr::VectorSelector(selector) => self.select(selector),
            Expr::MatrixSelector(selector) => self.select(&selector.vs),
            Expr::Aggregate(aggregate) => self.modify(aggregate.modifier.as_ref()),
            _ => {}
        }
        Ok(true)
    }
}

/// Names of the series that a host exports, and the labels of each.
fn exported(metrics: &Metrics) -> BTreeMap<String, BTreeSet<String>> {
    let mut families: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (series, _) in metrics.iter() {
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split("\",").filter_map(|label| label.split_once("=\""));
        families.entry(name.to_owned()).or_default().extend(labels.map(|(label, _)| label.to_owned()));
    }
    families
}

/// A host that has counted everything once: successes, failures, traps, a plugin that does not load, a held resource.
async fn busy_host() -> (World, Host) {
    let files = tempfile::tempdir().unwrap();
    let component = write(files.path(), "scripted.wasm", scripted("1", &json!({})));
    let world = World::granted("monitoring", &[component]).await;
    write(world.plugins.path(), "broken.wasm", "this is no component");
    let host = Host::start(world.options()).await.unwrap();
    perform(&world, "well", json!({"children": [config_map("well", "1")]})).await;
    perform(&world, "trapping", json!({"behaviour": "trap"})).await;
    comes_to(&world, "well", "Succeeded").await;
    comes_to(&world, "trapping", "PluginTrapped").await;
    counts(&host, "pilothouse_plugins_not_serving", &[], 1).await;
    (world, host)
}

#[tokio::test]
async fn dashboard_and_alerts_ask_for_what_the_host_exports() {
    let (_world, host) = busy_host().await;
    let families = exported(&host.metrics().await.unwrap());
    for (place, text) in expressions() {
        let expression = parser::parse(&text).unwrap_or_else(|error| panic!("{place}: {text}: {error}"));
        let mut asked = Asked::default();
        walk_expr(&mut asked, &expression).unwrap();
        assert!(!asked.metrics.is_empty(), "{place}: {text} asks for nothing");
        let mut labels: BTreeSet<&str> = OF_PROMETHEUS.into();
        for metric in &asked.metrics {
            let known = families.get(metric);
            labels.extend(
                known.unwrap_or_else(|| panic!("{place}: there is no {metric}")).iter().map(String::as_str),
            );
        }
        for label in &asked.labels {
            assert!(
                labels.contains(label.as_str()),
                "{place}: {text}: no metric in it has the label {label}"
            );
        }
    }
}

/// The scrape itself: by default the format that every scraper reads, and OpenMetrics for those that ask.
#[tokio::test]
async fn a_scrape_is_answered_in_the_format_that_is_asked_for() {
    let (_world, host) = busy_host().await;
    let scrape = async |accept: &str| {
        let mut connection = TcpStream::connect(host.address()).await.unwrap();
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: host\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        answer.to_lowercase()
    };
    let plain = scrape("*/*").await;
    assert!(plain.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{plain:.400}");
    assert!(plain.contains("# type controller_runtime_reconcile_total counter\n"), "{plain:.400}");
    let open = scrape("application/openmetrics-text; version=1.0.0").await;
    assert!(
        open.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{open:.400}"
    );
    assert!(open.contains("# eof\n") && open.contains("# type controller_runtime_reconcile counter\n"));
}

/// `deploy/base` stands alone; with the component come the kinds of the Prometheus operator, and the dashboard whole.
#[tokio::test]
async fn monitoring_is_a_component_that_base_does_without() {
    let built = async |directory: &str| {
        let directory = workspace::root().join("deploy").join(directory);
        let text = run("kubectl".as_ref(), ["kustomize".as_ref(), directory.as_os_str()]).await;
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        objects
    };
    let kinds = |objects: &[Value]| -> BTreeSet<String> {
        objects.iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    };
    let (base, monitored) = (built("base").await, built("monitored").await);
    let added: BTreeSet<String> = kinds(&monitored).difference(&kinds(&base)).cloned().collect();
    assert_eq!(added, ["ConfigMap", "PodMonitor", "PrometheusRule"].map(str::to_owned).into());
    let of_kind = |kind: &str| monitored.iter().find(|object| object["kind"] == kind).unwrap();
    let dashboard: Value =
        serde_json::from_str(of_kind("ConfigMap")["data"]["pilothouse.json"].as_str().unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has its own id");
    assert!(
        panels.iter().all(|panel| panel["type"] == "row" || panel["datasource"]["uid"] == "${datasource}")
    );
    // It scrapes the pods of the Deployment, at a port that they have.
    let (monitor, deployment) = (of_kind("PodMonitor"), of_kind("Deployment"));
    let template = &deployment["spec"]["template"];
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(wanted.iter().all(|(label, value)| &template["metadata"]["labels"][label] == value));
    let ports = template["spec"]["containers"][0]["ports"].as_array().unwrap();
    assert!(ports.iter().any(|port| port["name"] == monitor["spec"]["podMetricsEndpoints"][0]["port"]));
    for rule in of_kind("PrometheusRule")["spec"]["groups"][0]["rules"].as_array().unwrap() {
        for field in ["summary", "description"] {
            assert!(rule["annotations"][field].is_string(), "{}: {field}", rule["alert"]);
        }
    }
}
