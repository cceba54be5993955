//! How does the service run until it is told to stop? Listen first, load, report, serve, drain.

use crate::compose::{self, Opening, Service};
use crate::config::Config;
use crate::failure::Failure;
use crate::ui;
use crate::ui::progress::{Progress, Unit, say};
use index::{Follower, IndexError, Phase, Round, Watch};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal;

/// Exit code of a second Ctrl-C: 128 and the signal's number, as shells have it.
const QUIT: i32 = 130;

/// `riposte serve`.
///
/// # Errors
/// When the port is taken, or index or model are missing.
pub async fn run(config: &Config) -> Result<(), Failure> {
    let listener = listen(config).await?;
    let embed = compose::embedder(config)?;
    let is_live = config.access().may_write() || !config.index.watch.is_empty();
    let opening = if is_live { Opening::Live } else { Opening::Read };
    let service = compose::service(config, &config.index.data, opening, embed)?;
    // Held until the server has stopped.
    let _watch = watch(config, &service)?;
    say(&ui::report::start(&service, Some(&address(&listener)?)));
    until_stopped(listener, &service, config, &config.server.sample_questions).await
}

/// Brings the index up to date with the watched folders, and goes on following them.
fn watch(config: &Config, service: &Service) -> Result<Option<Watch>, Failure> {
    if config.index.watch.is_empty() {
        return Ok(None);
    }
    let mut follower =
        Follower::new(Arc::clone(&service.index), &config.index.watch).map_err(Failure::new)?;
    let mut bar = Progress::start("watched folders: looking for documents", Unit::Things("files"));
    let mut report = |news: &index::Progress| {
        if news.phase == Phase::Parse {
            bar.label("watched folders: reading and embedding what is new");
        }
        bar.at(news.done as u64, news.total as u64);
    };
    let first = follower.look(&mut report).map_err(Failure::new)?;
    bar.done(&ui::report::round(&first));
    let tell = |round: Result<&Round, &IndexError>| match round {
        Ok(round) => say(&ui::report::round(round)),
        Err(error) => say(&format!("watched folders: {error}; looking again")),
    };
    follower.follow(Duration::from_millis(config.index.watch_ms), tell).map(Some).map_err(Failure::new)
}

/// Takes the port. Done first of all, so that a taken one is told before a model is fetched and loaded.
///
/// # Errors
/// When the address is not one, or not free.
pub async fn listen(config: &Config) -> Result<TcpListener, Failure> {
    let wanted = &config.server.listen;
    TcpListener::bind(wanted.as_str()).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            Failure::new(format!("{wanted} is taken by another program")).hint("--listen 127.0.0.1:8081")
        }
        ErrorKind::InvalidInput => Failure::usage(format!("server.listen {wanted:?} is no address and port"))
            .hint("--listen 127.0.0.1:8080"),
        _ => Failure::new(format!("cannot listen on {wanted}: {error}")).hint("--listen 127.0.0.1:8080"),
    })
}

/// Where the page is.
///
/// # Errors
/// When the socket is gone.
pub fn address(listener: &TcpListener) -> Result<String, Failure> {
    Ok(format!("http://{}", listener.local_addr()?))
}

/// Serves until Ctrl-C or SIGTERM, then drains.
///
/// # Errors
/// When the listener fails.
pub async fn until_stopped(
    listener: TcpListener,
    service: &Service,
    config: &Config,
    sample_questions: &[String],
) -> Result<(), Failure> {
    let state = compose::api_state(service, config, sample_questions);
    api::serve(listener, state, told_to_stop()).await.map_err(Failure::new)
}

/// Returns at the first Ctrl-C or SIGTERM; the second one ends the process at once.
async fn told_to_stop() {
    stop_signal().await;
    say("stopping: running answers may end; Ctrl-C again quits at once");
    tokio::spawn(async {
        stop_signal().await;
        std::process::exit(QUIT);
    });
}

async fn stop_signal() {
    #[cfg(unix)]
    {
        let terminate = signal::unix::signal(signal::unix::SignalKind::terminate());
        let Ok(mut terminate) = terminate else {
            let _ = signal::ctrl_c().await;
            return;
        };
        tokio::select! {
            _ = signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    {
        let _ = signal::ctrl_c().await;
    }
}
