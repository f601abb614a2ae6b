//! A Service in small: connections to one port go to those hosts that are in it, by turns, and a host that leaves it goes
//! on getting some for a moment, as kube-proxies hear of it one after the other.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// How long a host that has left still gets connections.
const LAG: Duration = Duration::from_secs(1);

/// The Service. Dropping it ends its connections.
#[derive(Debug)]
pub struct Balancer {
    port: u16,
    members: Arc<Mutex<Vec<u16>>>,
    _task: JoinSet<()>,
}

impl Balancer {
    /// Listens on a loopback port of its own. Belongs to the async runtime that this is called on.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let members: Arc<Mutex<Vec<u16>>> = Arc::default();
        let mut task = JoinSet::new();
        task.spawn(accept(listener, Arc::clone(&members)));
        Self { port, members, _task: task }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A host that is ready gets connections.
    pub fn join(&self, port: u16) {
        self.members.lock().unwrap().push(port);
    }

    /// A host that was told to end gets none any more, after a moment.
    pub async fn leave(&self, port: u16) {
        tokio::time::sleep(LAG).await;
        self.members.lock().unwrap().retain(|member| *member != port);
    }
}

async fn accept(listener: TcpListener, members: Arc<Mutex<Vec<u16>>>) {
    let mut connections = JoinSet::new();
    for turn in 0_usize.. {
        let Ok((mut client, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        let member = {
            let members = members.lock().unwrap();
            members.get(turn % members.len().max(1)).copied()
        };
        // Without a member the connection is closed, as by a Service without endpoints.
        let Some(member) = member else { continue };
        connections.spawn(async move {
            if let Ok(mut host) = TcpStream::connect(("127.0.0.1", member)).await {
                let _ = copy_bidirectional(&mut client, &mut host).await;
            }
        });
    }
}
