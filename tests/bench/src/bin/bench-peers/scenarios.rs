//! The work, as `tests/bench/peers/README.md` describes it: E idle, A cold, B patches, C restart; D is A, B and C at ten
//! times the size.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Client;
use pilothouse_harness::{
    Audit as Policy, ControlPlane, Operator, OperatorCommand, Options, Usage, workspace,
};
use tempfile::TempDir;

use crate::audit::Audit;
use crate::contestants::{Contestant, Programs};
use crate::load::{SIZE, User, all_there, name};

/// Whom the audit log is about.
const OPERATOR: &str = "operator";
const ADMINISTRATORS: &str = "system:masters";
/// Until an operator has started, compiled what it compiles, and given back what that took.
const SETTLE: Duration = Duration::from_secs(10);
/// Without a request for so long, an operator is done.
const REST: Duration = Duration::from_secs(2);
/// Between two patches: a user is slower than an operator.
const PAUSE: Duration = Duration::from_millis(50);
/// One patch, or one restart.
const REACTION_MAX: Duration = Duration::from_mins(1);
/// All of A, or of D.
const CONVERGENCE_MAX: Duration = Duration::from_mins(15);
/// Patches of one round of B.
pub(crate) const PATCHES: usize = 50;
/// Rounds of B in one run: with five runs, 500 samples.
const ROUNDS: usize = 2;

/// What one operator did in one life.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(crate) idle_mib: f64,
    pub(crate) converge_s: f64,
    pub(crate) cold_cpu_s: f64,
    /// Those asked for, less those needed.
    pub(crate) cold_writes_over: f64,
    pub(crate) cold_lists: f64,
    pub(crate) peak_mib: f64,
    pub(crate) final_mib: f64,
    pub(crate) pod_ms: Vec<f64>,
    pub(crate) status_ms: Vec<f64>,
    pub(crate) patches_cpu_s: f64,
    pub(crate) patches_writes_over: f64,
    pub(crate) restart_writes: f64,
    pub(crate) restart_cpu_s: f64,
    pub(crate) restart_mib: f64,
    pub(crate) reaction_s: f64,
}

/// A control plane with nothing in it, and what is needed to run one operator against it.
struct Arena {
    plane: ControlPlane,
    client: Client,
    command: Option<OperatorCommand>,
    audit: Audit,
    _directory: TempDir,
}

impl Arena {
    async fn new(contestant: Option<(Contestant, &Programs)>) -> Result<Self> {
        let audit = Policy::Users(vec![OPERATOR.to_owned()]);
        let plane = ControlPlane::start(Options { audit, ..Options::default() }).await?;
        let kubeconfig = plane.kubeconfig_for_user(OPERATOR, Some(ADMINISTRATORS))?;
        let client = plane.client().await?;
        apply_crd(&client, &workspace::root().join("deploy/crds/pod-replica.yaml")).await?;
        let directory = tempfile::tempdir()?;
        let command = contestant
            .map(|(one, programs)| programs.command(one, &kubeconfig, directory.path()))
            .transpose()?;
        let audit = Audit::follow(plane.audit_log().to_owned());
        Ok(Self { plane, client, command, audit, _directory: directory })
    }

    fn start(&self) -> Result<Operator> {
        Operator::start(self.command.as_ref().context("nobody takes part")?)
    }

    async fn user(&self) -> Result<User> {
        User::new(self.client.clone()).await
    }

    /// E, and an operator that has nothing to do yet.
    async fn idle(&mut self, run: &mut Run) -> Result<Operator> {
        let operator = self.start()?;
        tokio::time::sleep(SETTLE).await;
        run.idle_mib = mib(operator.usage()?.rss_bytes);
        self.audit.take()?;
        Ok(operator)
    }

    /// A: many resources at once.
    async fn cold(&mut self, operator: &Operator, count: usize, run: &mut Run) -> Result<()> {
        let user = self.user().await?;
        let (begun, before) = (Instant::now(), operator.usage()?);
        user.create(count, SIZE).await?;
        user.until("all pods and statuses", CONVERGENCE_MAX, |seen| all_there(seen, count)).await?;
        let last = {
            let seen = user.seen();
            seen.pods.values().chain(seen.complete.values()).max().copied().unwrap_or(begun)
        };
        run.converge_s = last.duration_since(begun).as_secs_f64();
        self.audit.rest(REST).await?;
        let after = operator.usage()?;
        run.cold_cpu_s = cpu_s(&before, &after);
        let requests = self.audit.take()?;
        eprintln!("  cold: {requests}");
        run.cold_writes_over = over(requests.writes(), count * (SIZE + 1));
        run.cold_lists = over(requests.lists(), 0);
        (run.peak_mib, run.final_mib) = (mib(after.rss_peak_bytes), mib(after.rss_bytes));
        user.leave().await;
        Ok(())
    }

    /// B: one resource after the other gets one pod more.
    async fn patches(&mut self, operator: &Operator, count: usize, run: &mut Run) -> Result<()> {
        let user = self.user().await?;
        let before = operator.usage()?;
        let step = (count - 1) / PATCHES;
        for size in SIZE + 1..=SIZE + ROUNDS {
            for number in (0..PATCHES).map(|at| at * step) {
                let (name, pod) = (name(number), format!("{}-{}", name(number), size - 1));
                let sent = user.resize(&name, size).await?;
                // Not complete from the event of the patch on, which comes before that of the status.
                let reacted = user.until("the reaction to a patch", REACTION_MAX, |seen| {
                    let complete = seen.complete.get(&name).is_some_and(|at| *at > sent);
                    seen.pods.contains_key(&pod) && complete
                });
                reacted.await?;
                run.pod_ms.push(millis(user.seen().pods[&pod], sent));
                run.status_ms.push(millis(user.seen().complete[&name], sent));
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.audit.rest(REST).await?;
        run.patches_cpu_s = cpu_s(&before, &operator.usage()?) / float(ROUNDS);
        let requests = self.audit.take()?;
        eprintln!("  patches: {requests}");
        run.patches_writes_over = over(requests.writes(), ROUNDS * PATCHES * 2) / float(ROUNDS);
        user.leave().await;
        Ok(())
    }

    /// C: a restart with nothing to do, and one with a patch that came meanwhile.
    async fn restart(&mut self, operator: Operator, count: usize, run: &mut Run) -> Result<()> {
        operator.terminate().await?;
        self.audit.rest(Duration::from_secs(1)).await?;
        self.audit.take()?;
        let operator = self.start()?;
        self.audit.rest(REST + Duration::from_secs(3)).await?;
        let usage = operator.usage()?;
        (run.restart_cpu_s, run.restart_mib) = (usage.cpu.as_secs_f64(), mib(usage.rss_bytes));
        let requests = self.audit.take()?;
        eprintln!("  restart: {requests}");
        run.restart_writes = over(requests.writes(), 0);
        operator.terminate().await?;

        let user = self.user().await?;
        let (name, pod) = (name(count - 1), format!("{}-{SIZE}", name(count - 1)));
        let begun = Instant::now();
        let operator = self.start()?;
        user.resize(&name, SIZE + 1).await?;
        user.until("the reaction after a restart", REACTION_MAX, |seen| seen.pods.contains_key(&pod)).await?;
        run.reaction_s = user.seen().pods[&pod].duration_since(begun).as_secs_f64();
        self.audit.rest(REST).await?;
        user.leave().await;
        operator.terminate().await
    }
}

/// E, A, B and C by one operator.
pub(crate) async fn life(one: Contestant, programs: &Programs, count: usize) -> Result<Run> {
    let mut arena = Arena::new(Some((one, programs))).await?;
    let mut run = Run::default();
    let operator = arena.idle(&mut run).await?;
    arena.cold(&operator, count, &mut run).await?;
    arena.patches(&operator, count, &mut run).await?;
    arena.restart(operator, count, &mut run).await?;
    Ok(run)
}

/// Milliseconds that one patch and one creation of a pod take until each is seen, with nobody in between.
pub(crate) async fn floor() -> Result<Vec<f64>> {
    let arena = Arena::new(None).await?;
    let user = arena.user().await?;
    user.create(PATCHES, SIZE).await?;
    let mut times = Vec::new();
    for number in 0..PATCHES {
        let (name, pod) = (name(number), format!("{}-{SIZE}", name(number)));
        let sent = user.resize(&name, SIZE + 1).await?;
        user.until("the patch", REACTION_MAX, |seen| seen.resources.get(&name).is_some_and(|at| *at > sent))
            .await?;
        let patch = millis(user.seen().resources[&name], sent);
        let sent = user.create_pod(&pod).await?;
        user.until("the pod", REACTION_MAX, |seen| seen.pods.contains_key(&pod)).await?;
        times.push(patch + millis(user.seen().pods[&pod], sent));
        tokio::time::sleep(PAUSE).await;
    }
    user.leave().await;
    drop(arena.plane);
    Ok(times)
}

/// CPU milliseconds of one change of size, from 0 to 1 or back, among so many resources.
pub(crate) async fn cost_among(one: Contestant, programs: &Programs, count: usize) -> Result<f64> {
    /// Enough that CPU times in steps of 10 ms say something.
    const CHANGES: usize = 400;
    let mut arena = Arena::new(Some((one, programs))).await?;
    let operator = arena.idle(&mut Run::default()).await?;
    let user = arena.user().await?;
    user.create(count, 0).await?;
    user.until("all statuses", CONVERGENCE_MAX, |seen| seen.complete.len() == count).await?;
    arena.audit.rest(REST).await?;
    let before = operator.usage()?;
    for change in 0..CHANGES {
        // Few resources, so that both counts do the very same.
        let (name, size) = (name(change / 2 % 50), 1 - change % 2);
        let sent = user.resize(&name, size).await?;
        let pod = format!("{name}-0");
        let reacted = user.until("a change of size", REACTION_MAX, |seen| {
            let complete = seen.resources.get(&name).is_some_and(|at| *at > sent);
            complete && seen.complete.contains_key(&name) && seen.pods.contains_key(&pod) == (size == 1)
        });
        reacted.await?;
    }
    arena.audit.rest(REST).await?;
    let spent = cpu_s(&before, &operator.usage()?);
    user.leave().await;
    operator.terminate().await?;
    Ok(spent * 1e3 / float(CHANGES))
}

async fn apply_crd(client: &Client, path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let crd: serde_json::Value = serde_saphyr::from_str(&text)?;
    let name = crd["metadata"]["name"].as_str().context("a CRD without a name")?.to_owned();
    let collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let body = crd.to_string().into_bytes();
    let request = http::Request::post(collection).header("Content-Type", "application/json").body(body)?;
    client.request_text(request).await?;
    let deadline = Instant::now() + REACTION_MAX;
    loop {
        let request = http::Request::get(format!("{collection}/{name}")).body(Vec::new())?;
        let crd: serde_json::Value = client.request(request).await?;
        let conditions = crd["status"]["conditions"].as_array().into_iter().flatten();
        if conditions.clone().any(|one| one["type"] == "Established" && one["status"] == "True") {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "{name} is not established: {crd}");
        tokio::time::sleep(PAUSE).await;
    }
}

#[allow(clippy::cast_precision_loss, reason = "bytes of one process")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn cpu_s(before: &Usage, after: &Usage) -> f64 {
    after.cpu.saturating_sub(before.cpu).as_secs_f64()
}

fn millis(at: Instant, since: Instant) -> f64 {
    at.duration_since(since).as_secs_f64() * 1e3
}

#[allow(clippy::cast_precision_loss, reason = "hundreds")]
fn float(count: usize) -> f64 {
    count as f64
}

#[allow(clippy::cast_precision_loss, reason = "thousands")]
fn over(count: u64, needed: usize) -> f64 {
    count as f64 - needed as f64
}
