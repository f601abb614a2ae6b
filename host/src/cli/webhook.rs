//! The part of `run`'s arguments that is about webhooks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pilothouse_model::webhook::Address;

use crate::cli::exit::Exit;
use crate::cli::lease::is_dns_name;
use crate::cli::run::check_namespace;
use crate::webhooks::WebhookConfig;

/// What the API server asks plugins before it stores an object
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_field_names, reason = "the flags' names")]
#[command(next_help_heading = "Webhooks")]
pub(crate) struct WebhookArgs {
    /// Where webhooks of plugins are served over HTTPS [default: nowhere; plugins that need them are not loaded or do
    /// not check]
    #[arg(long, value_name = "ADDR:PORT", env = "PILOTHOUSE_WEBHOOK_LISTEN")]
    webhook_listen: Option<SocketAddr>,
    /// Service by which the API server finds the hosts; port 443 unless said otherwise
    #[arg(
        long,
        value_name = "NS/NAME[:PORT]",
        env = "PILOTHOUSE_WEBHOOK_SERVICE",
        conflicts_with = "webhook_url"
    )]
    webhook_service: Option<String>,
    /// Address by which the API server finds a host that is outside of the cluster, https://HOST:PORT
    #[arg(long, value_name = "URL", env = "PILOTHOUSE_WEBHOOK_URL")]
    webhook_url: Option<String>,
    /// Name of the webhook configurations, and the beginning of the name of the certificates' Secret. Hosts that work
    /// beside each other in one cluster need names of their own
    #[arg(long, value_name = "NAME", env = "PILOTHOUSE_WEBHOOK_NAME", default_value = "pilothouse")]
    webhook_name: String,
    /// Directory with tls.crt, tls.key and ca.crt, followed as it changes [default: the host makes certificates, and
    /// keeps them in the Secret NAME-webhook beside its Lease]
    #[arg(long, value_name = "DIR", env = "PILOTHOUSE_WEBHOOK_CERT_DIR")]
    webhook_cert_dir: Option<PathBuf>,
    /// Seconds that a certificate of the host's own is good for; it is replaced after two thirds of them
    #[arg(long, value_name = "SECONDS", env = "PILOTHOUSE_WEBHOOK_CERT_LIFETIME", default_value_t = 7_776_000,
          value_parser = clap::value_parser!(u64).range(30..=315_360_000))]
    webhook_cert_lifetime: u64,
}

impl WebhookArgs {
    /// Checks what was typed. None: no webhooks.
    pub(crate) fn config(self) -> Result<Option<WebhookConfig>, Exit> {
        check_webhook_name(&self.webhook_name)?;
        let address = match (self.webhook_service, self.webhook_url) {
            (Some(service), _) => Some(service_address(&service)?),
            (None, Some(url)) => Some(url_address(&url)?),
            (None, None) => None,
        };
        match (self.webhook_listen, address) {
            (Some(listen), Some(address)) => Ok(Some(WebhookConfig {
                listen,
                address,
                name: self.webhook_name,
                cert_dir: self.webhook_cert_dir,
                cert_lifetime: Duration::from_secs(self.webhook_cert_lifetime),
            })),
            (Some(_), None) => Err(Exit::bad_input(
                "--webhook-listen: the API server must be told where that is: give --webhook-service or --webhook-url",
            )),
            (None, Some(_)) => Err(Exit::bad_input(
                "--webhook-service, --webhook-url: nothing is served there: give --webhook-listen",
            )),
            (None, None) => Ok(None),
        }
    }
}

/// The name of a configuration is a DNS subdomain.
pub(crate) fn check_webhook_name(name: &str) -> Result<(), Exit> {
    if is_dns_name(name) {
        Ok(())
    } else {
        Err(Exit::bad_input(format!(
            "--webhook-name: `{name}` is no name: lower case letters, digits, `-` and `.` would be right"
        )))
    }
}

fn service_address(text: &str) -> Result<Address, Exit> {
    let wrong = || {
        Exit::bad_input(format!(
            "--webhook-service: `{text}` is no service: NAMESPACE/NAME or NAMESPACE/NAME:PORT would be right"
        ))
    };
    let (namespace, rest) = text.split_once('/').ok_or_else(wrong)?;
    let (name, port) = match rest.split_once(':') {
        Some((name, port)) => (name, port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?),
        None => (rest, 443),
    };
    check_namespace("--webhook-service", namespace)?;
    check_namespace("--webhook-service", name).map_err(|_| wrong())?;
    Ok(Address::Service { namespace: namespace.to_owned(), name: name.to_owned(), port })
}

fn url_address(text: &str) -> Result<Address, Exit> {
    let url = text.trim_end_matches('/');
    let host = url.strip_prefix("https://").unwrap_or_default();
    // What the API server refuses, too.
    if host.is_empty() || host.starts_with('/') || host.contains(['?', '#', '@', ' ']) {
        return Err(Exit::bad_input(format!(
            "--webhook-url: `{text}` is no address: https://HOST[:PORT] would be right"
        )));
    }
    Ok(Address::Url(url.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(service: Option<&str>, url: Option<&str>, listen: bool) -> Result<Option<WebhookConfig>, Exit> {
        WebhookArgs {
            webhook_listen: listen.then(|| "127.0.0.1:9443".parse().unwrap()),
            webhook_service: service.map(str::to_owned),
            webhook_url: url.map(str::to_owned),
            webhook_name: "pilothouse".to_owned(),
            webhook_cert_dir: None,
            webhook_cert_lifetime: 30,
        }
        .config()
    }

    #[test]
    fn where_webhooks_are_is_said_on_both_sides() {
        assert_eq!(config(None, None, false).unwrap(), None);
        let address = |service, url| config(service, url, true).unwrap().unwrap().address;
        let service = |port| Address::Service { namespace: "a".to_owned(), name: "b".to_owned(), port };
        assert_eq!(address(Some("a/b"), None), service(443));
        assert_eq!(address(Some("a/b:8443"), None), service(8443));
        assert_eq!(address(None, Some("https://[::1]:9443/")), Address::Url("https://[::1]:9443".to_owned()));
        for (service, url, listen, part) in [
            (None, None, true, "give --webhook-service or --webhook-url"),
            (Some("a/b"), None, false, "give --webhook-listen"),
            (Some("b"), None, true, "`b` is no service"),
            (Some("a/b:x"), None, true, "`a/b:x` is no service"),
            (Some("a/b:0"), None, true, "`a/b:0` is no service"),
            (Some("A/b"), None, true, "`A` is no namespace"),
            (None, Some("http://a"), true, "`http://a` is no address"),
            (None, Some("https://a?b"), true, "`https://a?b` is no address"),
        ] {
            let error = config(service, url, listen).unwrap_err().message;
            assert!(error.contains(part), "{error}");
        }
    }
}
