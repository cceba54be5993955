//! Which command was asked for? Reads the command line and the configuration, runs one command, sets the exit code.

mod ask;
mod bench;
mod cli;
mod codec;
mod compose;
mod config;
mod demo;
mod embed;
mod eval;
mod failure;
mod fetch;
mod handbook;
mod index_cmd;
mod keys_cmd;
mod load_cmd;
mod models_cmd;
mod serve;
mod simulate_cmd;
mod ui;

use clap::Parser as _;
use cli::{BenchCommand, Cli, Command, ConfigCommand, EvalCommand};
use config::{Config, Layers, Resolved};
use failure::Failure;
use std::future::Future;
use std::io::Write as _;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// Threads that move requests and events; computing has its own.
const RUNTIME_THREADS: usize = 2;

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_silent() => failure.exit_code(),
        Err(failure) => {
            ui::progress::say(&format!("{} {failure}", ui::paint(ui::ALARM, "error:")));
            failure.exit_code()
        }
    }
}

fn run(cli: &Cli) -> Result<(), Failure> {
    let layers = Layers::of_process(cli.common.config.clone(), cli.overrides())?;
    let resolved = layers.resolve()?;
    let config = &resolved.config;
    start_log(config)?;
    match &cli.command {
        Command::Demo(args) => wait(demo::run(args, config)),
        Command::Serve(_) => wait(serve::run(config)),
        Command::Index(args) => index_cmd::run(&args.paths, config),
        Command::Keys(command) => keys_cmd::run(command),
        Command::Models(command) => models_cmd::run(command, config),
        Command::Config(ConfigCommand::Show) => show(&resolved),
        Command::Eval(EvalCommand::Answers(args)) => wait(eval::answers::run(args, config)),
        Command::Eval(EvalCommand::Handbook(args)) => wait(eval::handbook::run(args, config)),
        Command::Eval(EvalCommand::Perplexity(args)) => eval::perplexity::run(args, config),
        Command::Eval(EvalCommand::Retrieval(args)) => eval::retrieval::run(args, config),
        Command::Bench(BenchCommand::Engine(args)) => bench::engine(args, config),
        Command::Bench(BenchCommand::Encode(args)) => bench::encode(args, config),
        Command::Bench(BenchCommand::Scheduling(args)) => wait(bench::scheduling(args, config)),
        Command::Loadtest(args) => wait(load_cmd::run(args)),
        Command::Simulate(args) => simulate_cmd::run(args, config),
    }
}

fn show(resolved: &Resolved) -> Result<(), Failure> {
    let text = resolved.show().map_err(Failure::new)?;
    Ok(anstream::stdout().write_all(text.as_bytes())?)
}

/// Log events go to stderr; stdout is for results.
fn start_log(config: &Config) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.log.filter).map_err(|error| {
        Failure::usage(format!("log.filter {:?}: {error}", config.log.filter)).hint("--log info")
    })?;
    // The same decision as for everything else that is printed: colour codes would garble a log file.
    let ansi = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
    Ok(())
}

fn wait(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("the runtime could not start: {error}")))?;
    runtime.block_on(work)
}
