//! Where an action may take place: of which kinds, in which namespaces. What needs a grant stands in [`crate::grants`].

use super::admit::{Refused, check_name};
use super::{Context, RefusalReason, clip};
use crate::grants::is_sensitive;
use crate::kind::Kind;
use crate::manifest::{Namespaces, Scope};

/// What an action does with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Makes it, or brings it to a state, as a child of a kind that may be in these namespaces.
    Own(Namespaces),
    /// Changes or deletes one that is not ours.
    Change,
    /// Reads it.
    Read,
}

/// The namespace in which an action of this plugin takes place, none for kinds without one.
pub(super) fn namespace_for(
    kind: &Kind,
    scope: Scope,
    asked: Option<String>,
    what: Use,
    cx: &Context<'_>,
) -> Result<Option<String>, Refused> {
    if what != Use::Read && is_sensitive(kind) && !cx.grants.names(kind) {
        let problem = format!("{kind} gives rights or changes the API server, and {}", not_granted(kind));
        return Err((RefusalReason::KindNotGranted, problem));
    }
    let own = cx.primary.meta().namespace.as_deref();
    let refuse = |problem: String| Err((RefusalReason::NamespaceNotGranted, problem));
    if scope == Scope::Cluster {
        if let Some(namespace) = asked {
            return refuse(format!(
                "{kind} is cluster-scoped, yet namespace `{}` is named",
                clip(&namespace, 63)
            ));
        }
        // A primary without a namespace has its related objects there.
        if cx.grants.names(kind) || what == Use::Read && own.is_none() {
            return Ok(None);
        }
        let problem = format!("{kind} is cluster-scoped, and {}", not_granted(kind));
        return Err((RefusalReason::KindNotGranted, problem));
    }
    let Some(namespace) = asked.or_else(|| own.map(str::to_owned)) else {
        return refuse(format!("{kind} needs a namespace, as its primary has none"));
    };
    check_name(&namespace).map_err(|problem| (RefusalReason::Malformed, format!("namespace: {problem}")))?;
    if own == Some(&namespace) {
        return Ok(Some(namespace));
    }
    let place = match own {
        Some(own) => format!("namespace `{}` is not that of the primary, `{own}`", clip(&namespace, 63)),
        None => format!("namespace `{}`", clip(&namespace, 63)),
    };
    if own.is_some() && what == Use::Own(Namespaces::Own) {
        return refuse(format!("{place}, and the manifest does not say `namespaces: any` of {kind}"));
    }
    if !cx.grants.admit(kind, &namespace) {
        return refuse(format!("{place}: {}", not_granted(kind)));
    }
    if !cx.namespaces.is_empty() && !cx.namespaces.contains(&namespace) {
        return refuse(format!("{place}: the host does not serve it, as its `--namespace` says"));
    }
    Ok(Some(namespace))
}

fn not_granted(kind: &Kind) -> String {
    format!("`grants` in the plugin's settings do not allow it for {kind}")
}
