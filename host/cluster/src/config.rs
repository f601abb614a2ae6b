//! Where the address and the credentials of the API server come from. They can be read again at any time: tokens and
//! certificates rotate while the host runs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::config::{Kubeconfig, KubeconfigError};

use crate::lease::Timing;

/// Where kubelet puts the credentials of a pod.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// How to reach the API server.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// `--kubeconfig`. None: `$KUBECONFIG`, else the pod's service account, else `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Under which name the API server's audit log knows this process.
    pub user_agent: String,
    /// Bytes of writes that the API server's machine has not acknowledged after this time are given up.
    pub write_travel_max: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            user_agent: concat!("pilothouse/", env!("CARGO_PKG_VERSION")).to_owned(),
            write_travel_max: Timing::default().travel_time(),
        }
    }
}

/// The configuration cannot be used; waiting would not help. Each text names the file and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing says where the API server is.
    #[error(
        "no kubeconfig: give --kubeconfig FILE, set KUBECONFIG, run in a pod with a service account, or create {0}"
    )]
    NotConfigured(String),
    /// The file cannot be read.
    #[error("kubeconfig {path} ({origin}) cannot be read: {problem}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Who named it.
        origin: &'static str,
        /// The operating system's words.
        problem: String,
    },
    /// The file is no kubeconfig.
    #[error("kubeconfig {path} is malformed: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, with the line where known.
        problem: String,
    },
    /// No context is chosen.
    #[error(
        "kubeconfig {path} names no current-context: run `kubectl config use-context NAME`; its contexts are {known}"
    )]
    NoContext {
        /// The file.
        path: PathBuf,
        /// The contexts that it has.
        known: String,
    },
    /// A name that leads nowhere: the context, or the context's cluster or user.
    #[error("kubeconfig {path}: {referrer} names the {what} `{name}`, which is not there; there are {known}")]
    Dangling {
        /// The file.
        path: PathBuf,
        /// The field that names it.
        referrer: String,
        /// `context`, `cluster` or `user`.
        what: &'static str,
        /// The name.
        name: String,
        /// Names that would lead somewhere.
        known: String,
    },
    /// A certificate, key, token, address or plugin that the configuration names cannot be used.
    #[error("{origin}: {problem}")]
    Unusable {
        /// The kubeconfig, or the service account.
        origin: String,
        /// What is wrong.
        problem: String,
    },
}

/// A place to read the configuration from, again and again.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    place: Place,
    user_agent: HeaderValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Files that are merged as kubectl does it: the first to say something wins.
    Files { paths: Vec<PathBuf>, origin: &'static str },
    /// The service account that kubelet mounts into the pod.
    Pod,
}

impl Source {
    /// Decides where to read from; reads nothing yet.
    pub(crate) fn find(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let place = find(options.kubeconfig.as_deref(), |name| std::env::var_os(name), Path::exists)?;
        let user_agent = HeaderValue::from_str(&options.user_agent).map_err(|error| {
            ConnectError::Unusable { origin: "user agent".to_owned(), problem: error.to_string() }
        })?;
        Ok(Self { place, user_agent })
    }

    /// Reads and checks the configuration. Blocks on files; runs no credential plugin.
    pub(crate) fn load(&self) -> Result<Config, ConnectError> {
        let mut config = match &self.place {
            Place::Pod => Config::incluster().map_err(|error| self.unusable(&error))?,
            Place::Files { paths, origin } => {
                let (kubeconfig, path) = read(paths, origin)?;
                check(&kubeconfig, &path)?;
                Config::try_from(kubeconfig).map_err(|error| self.unusable(&error))?
            }
        };
        config.headers.push((USER_AGENT, self.user_agent.clone()));
        Ok(config)
    }

    /// Names the place in front of a problem with something that the configuration names.
    pub(crate) fn unusable(&self, error: &dyn std::error::Error) -> ConnectError {
        let origin = match &self.place {
            Place::Pod => "the pod's service account".to_owned(),
            Place::Files { paths, .. } => format!("kubeconfig {}", join(paths)),
        };
        ConnectError::Unusable { origin, problem: crate::error::causes(error) }
    }
}

fn find(
    option: Option<&Path>,
    env: impl Fn(&str) -> Option<OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Result<Place, ConnectError> {
    let env = |name| env(name).filter(|value: &OsString| !value.is_empty());
    if let Some(path) = option {
        return Ok(Place::Files { paths: vec![path.to_owned()], origin: "--kubeconfig" });
    }
    if let Some(list) = env("KUBECONFIG") {
        let paths = std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
        return Ok(Place::Files { paths, origin: "KUBECONFIG" });
    }
    if env("KUBERNETES_SERVICE_HOST").is_some() && exists(Path::new(SERVICE_ACCOUNT_TOKEN)) {
        return Ok(Place::Pod);
    }
    match env("HOME").map(|home| Path::new(&home).join(".kube/config")) {
        Some(path) if exists(&path) => Ok(Place::Files { paths: vec![path], origin: "the default" }),
        Some(path) => Err(ConnectError::NotConfigured(path.display().to_string())),
        None => Err(ConnectError::NotConfigured("~/.kube/config".to_owned())),
    }
}

/// Of a list, files that do not exist are passed over, as kubectl does; a single one must be there.
fn read(paths: &[PathBuf], origin: &'static str) -> Result<(Kubeconfig, PathBuf), ConnectError> {
    let mut merged: Option<(Kubeconfig, PathBuf)> = None;
    for path in paths {
        if paths.len() > 1 && !path.exists() {
            continue;
        }
        let next = Kubeconfig::read_from(path).map_err(|error| match error {
            KubeconfigError::ReadConfig(error, path) => {
                ConnectError::Unreadable { path, origin, problem: error.to_string() }
            }
            other => ConnectError::Malformed {
                path: path.clone(),
                problem: first_line(&crate::error::causes(&other)),
            },
        })?;
        merged = Some(match merged {
            None => (next, path.clone()),
            Some((first, at)) => {
                let malformed = |error: KubeconfigError| ConnectError::Malformed {
                    path: path.clone(),
                    problem: first_line(&error.to_string()),
                };
                (first.merge(next).map_err(malformed)?, at)
            }
        });
    }
    merged.ok_or_else(|| ConnectError::Unreadable {
        path: PathBuf::from(join(paths)),
        origin,
        problem: "no such file".to_owned(),
    })
}

/// Follows the names in a kubeconfig; kube would say "failed to load current context" and pass over a missing user.
fn check(kubeconfig: &Kubeconfig, path: &Path) -> Result<(), ConnectError> {
    let contexts: BTreeSet<&str> = kubeconfig.contexts.iter().map(|entry| entry.name.as_str()).collect();
    let clusters: BTreeSet<&str> = kubeconfig.clusters.iter().map(|entry| entry.name.as_str()).collect();
    let users: BTreeSet<&str> = kubeconfig.auth_infos.iter().map(|entry| entry.name.as_str()).collect();
    let path = path.to_owned();
    let Some(current) = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty()) else {
        return Err(ConnectError::NoContext { path, known: list(&contexts) });
    };
    let dangling = |referrer: String, what, name: &str, known: &BTreeSet<&str>| {
        Err(ConnectError::Dangling {
            path: path.clone(),
            referrer,
            what,
            name: name.to_owned(),
            known: list(known),
        })
    };
    let context = kubeconfig.contexts.iter().find(|entry| entry.name == current);
    let Some(context) = context.and_then(|entry| entry.context.as_ref()) else {
        return dangling("current-context".to_owned(), "context", current, &contexts);
    };
    let referrer = format!("context `{current}`");
    let cluster = kubeconfig.clusters.iter().find(|entry| entry.name == context.cluster);
    let Some(cluster) = cluster.and_then(|entry| entry.cluster.as_ref()) else {
        return dangling(referrer, "cluster", &context.cluster, &clusters);
    };
    if let Some(user) = context.user.as_deref().filter(|name| !name.is_empty())
        && !users.contains(user)
    {
        return dangling(referrer, "user", user, &users);
    }
    if cluster.proxy_url.as_deref().is_some_and(|url| !url.is_empty()) {
        return Err(ConnectError::Unusable {
            origin: format!("kubeconfig {}", path.display()),
            problem: format!(
                "cluster `{}` has a proxy-url, which is not supported: name an address that can be reached directly",
                context.cluster
            ),
        });
    }
    Ok(())
}

fn list(names: &BTreeSet<&str>) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn join(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The parser's first line says what and where; those below it show the place, which a log has no room for.
fn first_line(problem: &str) -> String {
    problem.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place(option: Option<&str>, env: &[(&str, &str)], files: &[&str]) -> Result<Place, ConnectError> {
        find(
            option.map(Path::new),
            |name| env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)),
            |path| files.iter().any(|file| Path::new(file) == path),
        )
    }

    #[test]
    fn the_option_comes_before_the_variable_before_the_pod_before_the_home() {
        let env = [("KUBECONFIG", "/a:/b"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("HOME", "/h")];
        let files = [SERVICE_ACCOUNT_TOKEN, "/h/.kube/config"];
        let paths = |place: Result<Place, ConnectError>| match place.unwrap() {
            Place::Files { paths, .. } => join(&paths),
            Place::Pod => "pod".to_owned(),
        };
        assert_eq!(paths(place(Some("/x"), &env, &files)), "/x");
        assert_eq!(paths(place(None, &env, &files)), "/a, /b");
        assert_eq!(paths(place(None, &env[1..], &files)), "pod");
        assert_eq!(paths(place(None, &env[1..], &files[1..])), "/h/.kube/config");
        let error = place(None, &[("KUBECONFIG", ""), ("HOME", "/h")], &[]).unwrap_err().to_string();
        assert!(error.contains("--kubeconfig FILE") && error.contains("/h/.kube/config"), "{error}");
    }

    const GOOD: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}]}"#;

    fn load(text: &str) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        fs::write(&path, text).unwrap();
        let options = ConnectOptions { kubeconfig: Some(path.clone()), ..ConnectOptions::default() };
        let loaded = Source::find(&options).unwrap().load();
        loaded.map_err(|error| error.to_string()).inspect_err(|text| {
            assert!(text.contains(path.to_str().unwrap()), "{text} does not name the file");
        })
    }

    #[test]
    fn each_fault_of_a_kubeconfig_is_named() {
        let config = load(GOOD).unwrap();
        assert_eq!(config.cluster_url, "https://127.0.0.1:1");
        assert!(
            config
                .headers
                .iter()
                .any(|(name, value)| name == USER_AGENT && value.as_bytes().starts_with(b"pilothouse/"))
        );

        for (from, to, expected) in [
            (r#""current-context": "c","#, "", "names no current-context"),
            (
                r#""current-context": "c""#,
                r#""current-context": "d""#,
                "current-context names the context `d`",
            ),
            (
                r#""cluster": "k""#,
                r#""cluster": "l""#,
                "context `c` names the cluster `l`, which is not there; there are `k`",
            ),
            (
                r#""user": "u""#,
                r#""user": "v""#,
                "context `c` names the user `v`, which is not there; there are `u`",
            ),
            (
                r#""https://127.0.0.1:1""#,
                r#""https://127.0.0.1:1", "proxy-url": "http://p""#,
                "has a proxy-url",
            ),
            (
                r#""https://127.0.0.1:1""#,
                r#""https://127.0.0.1:1", "certificate-authority": "/none""#,
                "/none",
            ),
            ("{\"apiVersion\"", "]{", "malformed"),
        ] {
            let error = load(&GOOD.replace(from, to)).map(|_| ()).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn a_missing_file_is_named_with_who_named_it() {
        let options = ConnectOptions {
            kubeconfig: Some(PathBuf::from("/nowhere/config")),
            ..ConnectOptions::default()
        };
        let error = Source::find(&options).unwrap().load().unwrap_err().to_string();
        assert!(error.contains("/nowhere/config (--kubeconfig) cannot be read"), "{error}");
    }

    #[test]
    fn of_a_list_the_files_that_exist_are_merged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig");
        fs::write(&path, GOOD).unwrap();
        let paths = [directory.path().join("none"), path];
        assert_eq!(read(&paths, "KUBECONFIG").unwrap().0.current_context.as_deref(), Some("c"));
        assert!(read(&[directory.path().join("x"), directory.path().join("y")], "KUBECONFIG").is_err());
    }
}
