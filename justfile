# Verbs of the repository; `just` lists them. CI calls the same commands through .ci/run.

_default:
    @just --list

# Does it compile?
check:
    cargo check --workspace --all-targets

# Format the sources.
fmt:
    cargo fmt --all

# Clippy with warnings denied.
lint:
    cargo lint

# Every test.
test *ARGS:
    cargo test --workspace {{ARGS}}

# Licences, duplicates and sources of the dependencies; needs cargo-deny.
deny:
    cargo deny check licenses bans sources

# Fetch the models, index the handbook, ask, serve.
demo *ARGS:
    cargo run --release -- demo {{ARGS}}

# Ask the handbook's questions and write the report to be judged by reading.
eval-handbook OUT="docs/reports/handbook.md":
    cargo run --release -- eval handbook --questions docs/reports/handbook-questions-*.jsonl --out {{OUT}}

# Score answers and citations on a SQuAD file.
eval-answers SQUAD *ARGS:
    cargo run --release -- eval answers --squad {{SQUAD}} {{ARGS}}

# Each policy of the scheduler beside its alternative, on the real model.
bench-scheduling *ARGS:
    cargo run --release -- bench scheduling {{ARGS}}

# Microseconds of one scheduling decision.
bench-step:
    cargo bench -p sched

# A recorded trace through the scheduler on a virtual clock.
simulate TRACE *ARGS:
    cargo run --release -- simulate --trace {{TRACE}} {{ARGS}}

# Load the server that runs on this machine.
load *ARGS:
    cargo run --release -- loadtest {{ARGS}}

# What CI runs.
ci:
    bash .ci/run
