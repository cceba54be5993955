//! How does the page look without weights? Serves the API with a scripted model over the handbook, for work on the page
//! and for the client tests: `cargo run -p api --example scripted_server -- [ADDRESS] [MILLISECONDS_PER_TOKEN]`.

#[path = "../tests/api/rig.rs"]
mod rig;

use api::{Access, Writes};
use rig::{Parts, Rig};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_env_filter("info").init();
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8081".to_string());
    let pace = Duration::from_millis(arguments.next().map_or(Ok(3), |text| text.parse())?);
    let mut rig = Rig::new(&Parts {
        documents: rig::handbook(),
        pace,
        limits: rig::limits(),
        failing_at: None,
        access: Access::Open(Writes::None),
    });
    rig.state.sample_questions = [
        "Why does the KV cache grow with every token?",
        "When does speculative decoding pay?",
        "How many users do eight H100s serve with a 70B model?",
    ]
    .map(str::to_string)
    .to_vec();
    let listener = tokio::net::TcpListener::bind(&address).await?;
    tracing::info!("http://{}", listener.local_addr()?);
    api::serve(listener, rig.state.clone(), async {
        let _ = tokio::signal::ctrl_c().await;
    })
    .await?;
    Ok(())
}
