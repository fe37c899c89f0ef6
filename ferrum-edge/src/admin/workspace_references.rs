//! Who names a workspace: users by their grants, groups of the OpenID provider, and groups of edges.

use std::sync::Arc;

use gateway_core::config::model::AdminOidc;
use serde_json::{Value, json};

use super::Admin;
use super::problem::Refused;
#[cfg(feature = "console")]
use super::problem::store;
use super::request::AuthorizedRequest;
#[cfg(feature = "fleet")]
use crate::fleet::FleetRole;
#[cfg(feature = "console")]
use crate::store::User;

/// What may name workspaces. The claims of tokens are known only when the tokens come.
pub(super) struct References<'a> {
    admin: &'a Admin,
    #[cfg(feature = "console")]
    users: Vec<User>,
    provider: Option<Arc<AdminOidc>>,
}

impl<'a> References<'a> {
    /// As they are now.
    ///
    /// # Errors
    /// When the database does not answer.
    #[cfg_attr(
        not(feature = "console"),
        expect(clippy::unused_async, reason = "users are read with the console")
    )]
    pub(super) async fn of(admin: &'a Admin, asked: &AuthorizedRequest) -> Result<Self, Refused> {
        #[cfg(feature = "console")]
        let users =
            asked.reconciler.store().users().await.map_err(|error| Box::new(store(&error)) as Refused)?;
        #[cfg(not(feature = "console"))]
        let _ = asked;
        let provider = admin.engine.snapshot().settings.admin_oidc.clone();
        Ok(Self {
            admin,
            #[cfg(feature = "console")]
            users,
            provider,
        })
    }

    /// Who names this workspace.
    pub(super) fn of_workspace(&self, name: &str) -> Value {
        let grants = self.provider.iter().flat_map(|provider| &provider.grants);
        let of_it = grants.filter(|grant| grant.grant["workspace"] == *name);
        let provider = of_it.flat_map(|grant| {
            let role = &grant.grant["role"];
            grant.groups.iter().map(move |group| json!({ "group": group, "role": role }))
        });
        json!({
            "users": self.users(name),
            "provider_groups": provider.collect::<Vec<_>>(),
            "edge_groups": groups(self.admin, name),
        })
    }

    #[cfg(feature = "console")]
    fn users(&self, name: &str) -> Vec<Value> {
        let named = self.users.iter().filter_map(|user| {
            let role = user.grants.as_ref()?.role_for_workspace(name)?;
            Some(json!({ "name": user.name, "role": role.min(user.role).as_str() }))
        });
        named.collect()
    }

    #[cfg(not(feature = "console"))]
    #[expect(clippy::unused_self, reason = "there are users with the console only")]
    fn users(&self, _: &str) -> Vec<Value> {
        Vec::new()
    }
}

/// The groups of edges that name a workspace; only a control plane knows them.
pub(super) fn groups(admin: &Admin, name: &str) -> Vec<String> {
    #[cfg(feature = "fleet")]
    if let Some(FleetRole::Control(plane)) = &admin.fleet {
        return plane.roster().groups_of_workspace(name);
    }
    let _ = (admin, name);
    Vec::new()
}
