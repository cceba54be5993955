//! What does a first visitor see? Models, the handbook as an index, one answered question, and a served page.

use crate::ask::ask;
use crate::cli::DemoArgs;
use crate::compose::{self, Opening, Service};
use crate::config::Config;
use crate::failure::Failure;
use crate::ui::progress::say;
use crate::ui::{self, STRONG, paint};
use crate::{fetch, handbook, index_cmd, serve};
use std::io::Write as _;

/// `riposte demo`.
///
/// # Errors
/// When anything is missing that the demo needs.
pub async fn run(args: &DemoArgs, config: &Config) -> Result<(), Failure> {
    if let Some(question) = &args.once {
        let service = prepare(config)?;
        say(&ui::report::start(&service, None));
        return show(&service, config, question).await;
    }
    let listener = serve::listen(config).await?;
    let service = prepare(config)?;
    let address = serve::address(&listener)?;
    say(&ui::report::start(&service, Some(&address)));
    let sample = async {
        // The page is up already; a sample that fails is said and ends nothing.
        if let Err(failure) = show(&service, config, &config.demo.question).await {
            say(&format!("the sample question failed: {failure}"));
        }
        say(&format!("Serving on {}: open it in a browser. Ctrl-C stops.", paint(ui::LINK, &address)));
        std::future::pending::<()>().await;
    };
    let questions = handbook::questions();
    tokio::select! {
        result = serve::until_stopped(listener, &service, config, &questions) => result,
        () = sample => Ok(()),
    }
}

/// Fetches what is missing, indexes the handbook and starts the service.
///
/// # Errors
/// When a model cannot be had or the index cannot be written.
pub fn prepare(config: &Config) -> Result<Service, Failure> {
    // Both downloads come before any work, so that what is missing is told early.
    fetch::language_model(config)?;
    let embed = compose::embedder(config)?;
    let pages = handbook::pages(&config.demo.data.join("pages"))?;
    let data = config.demo.data.join("index");
    // Built at every start: vectors of unchanged pages are taken over, so this costs little and is never stale.
    index_cmd::build(&pages, &data, embed.as_ref(), config)?;
    compose::service(config, &data, Opening::Read, embed)
}

/// Asks one question and shows the answer as it streams, its sources and where the time went.
async fn show(service: &Service, config: &Config, question: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    writeln!(out, "{} {question}\n", paint(STRONG, "Q:"))?;
    let answered = ask(service, config, question, |piece| {
        write!(out, "{}", ui::answer::tint(piece))?;
        out.flush()
    });
    let answered = answered.await?;
    writeln!(out)?;
    write!(out, "{}", ui::answer::footer(&answered))?;
    Ok(())
}
