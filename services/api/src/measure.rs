//! How long did it take and how did it end? The recorder, and one watch for each running request.

use crate::engine_times;
use crate::error::ApiError;
use crate::metric_names as names;
use crate::state::Shared;
use answer::FinalReport;
use budgets::Moment;
use engine::{Engine, EngineStats, FinishReason};
use index::Index;
use metrics::{counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The server's own recorder. It is never made the process's global one, so that two servers in one process (as in
/// tests) do not mix their figures.
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    model: String,
    /// The last engine step whose record was counted.
    steps_seen: Mutex<u64>,
}

impl Metrics {
    pub(crate) fn new(model: &str) -> Self {
        // The buckets are constants and not empty, which is the one thing that can be wrong with them.
        let full = |name: &str| Matcher::Full(name.to_string());
        let builder = PrometheusBuilder::new()
            .set_buckets(names::BUCKETS_S)
            .and_then(|b| b.set_buckets_for_metric(full(names::ITERATION_TOKENS), names::BUCKETS_TOKENS))
            .and_then(|b| b.set_buckets_for_metric(full(names::PLAN_SECONDS), names::BUCKETS_PLAN_S));
        let recorder = builder.unwrap_or_else(|_| PrometheusBuilder::new()).build_recorder();
        let handle = recorder.handle();
        with_local_recorder(&recorder, || {
            names::describe();
            // Series that exist from the start can be alerted on before the first event.
            for name in [names::CITATIONS_REMOVED, names::CITATIONS_ADDED, names::UNGROUNDED, names::DEGRADED]
            {
                counter!(name).absolute(0);
            }
            gauge!(names::IN_FLIGHT).set(0.0);
        });
        Self { recorder, handle, model: model.to_string(), steps_seen: Mutex::new(0) }
    }

    fn record(&self, f: impl FnOnce()) {
        with_local_recorder(&self.recorder, f);
    }

    pub(crate) fn http(&self, route: &str, method: &str, status: u16, took: Duration) {
        // Methods are free text in HTTP; labels must stay few.
        let method = if matches!(method, "GET" | "POST" | "PUT" | "DELETE" | "HEAD" | "OPTIONS") {
            method
        } else {
            "other"
        };
        let labels =
            [("route", route.to_string()), ("method", method.to_string()), ("status", status.to_string())];
        self.record(|| {
            counter!(names::HTTP_REQUESTS, &labels).increment(1);
            histogram!(names::HTTP_SECONDS, "route" => route.to_string()).record(took);
        });
    }

    pub(crate) fn error(&self, code: &'static str, stage: &'static str) {
        self.record(|| counter!(names::ERRORS, "code" => code, "stage" => stage).increment(1));
    }

    pub(crate) fn search(&self, took: Duration) {
        self.record(|| histogram!(names::SEARCH_SECONDS).record(took));
    }

    /// Counts what became of a document.
    pub(crate) fn document(&self, outcome: &'static str) {
        self.record(|| counter!(names::DOCUMENTS, "outcome" => outcome).increment(1));
    }

    fn answer(&self, report: &FinalReport) {
        self.record(|| {
            counter!(names::ANSWERS, "finish" => report.finish.name()).increment(1);
            histogram!(names::ANSWER_SECONDS).record(report.total);
            for (stage, took) in report.timeline.stages() {
                histogram!(names::STAGE_SECONDS, "stage" => stage.name()).record(took);
            }
            counter!(names::CITATIONS_REMOVED).increment(report.citations_removed as u64);
            counter!(names::CITATIONS_ADDED).increment(report.citations_added as u64);
            counter!(names::UNGROUNDED).increment(u64::from(!report.grounded));
            counter!(names::DEGRADED).increment(u64::from(!report.degraded.is_empty()));
        });
    }

    /// Takes in what the engine's steps did, before its ring forgets them, and folds samples into buckets.
    pub(crate) fn upkeep(&self, engine: &Engine) {
        self.count_steps(engine);
        self.handle.run_upkeep();
    }

    /// Counts each step's record once, whoever asks.
    fn count_steps(&self, engine: &Engine) {
        let mut seen = self.steps_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let records = engine.step_records(*seen);
        self.record(|| {
            for record in &records {
                let tokens = record.shape.prefill_tokens + record.shape.decode_rows;
                histogram!(names::ITERATION_TOKENS, "model_name" => self.model.clone())
                    .record(lossy(tokens as u64));
                histogram!(names::STEP_SECONDS).record(record.measured);
                if !record.predicted.is_zero() {
                    histogram!(names::PREDICTED_SECONDS).record(record.predicted);
                }
                histogram!(names::PLAN_SECONDS).record(record.planned);
            }
        });
        if let Some(last) = records.last() {
            *seen = last.number;
        }
    }

    /// The text that Prometheus reads.
    pub(crate) fn scrape(&self, engine: &Engine, index: &Index) -> String {
        self.count_steps(engine);
        let stats = engine.stats();
        self.record(|| {
            self.engine_figures(&stats);
            let index = index.info();
            gauge!(names::INDEX_GENERATION).set(lossy(index.generation));
            gauge!(names::INDEX_DOCUMENTS).set(lossy(index.documents as u64));
            gauge!(names::INDEX_PASSAGES).set(lossy(index.passages as u64));
            gauge!(names::INDEX_FRESH).set(lossy(index.passages_fresh as u64));
            gauge!(names::INDEX_DEAD).set(lossy(index.passages_dead as u64));
        });
        self.handle.render() + &engine_times::render(&stats.histograms, &self.model)
    }

    /// The engine keeps its own counts; they are copied as they stand.
    fn engine_figures(&self, stats: &EngineStats) {
        let model = || self.model.clone();
        gauge!(names::RUNNING, "model_name" => model()).set(lossy(stats.running as u64));
        gauge!(names::WAITING, "model_name" => model()).set(lossy(stats.waiting as u64));
        let usage = lossy(stats.blocks_held as u64) / lossy(stats.blocks_total.max(1) as u64);
        gauge!(names::KV_USAGE, "model_name" => model()).set(usage);
        counter!(names::PROMPT_TOKENS, "model_name" => model()).absolute(stats.prompt_tokens);
        counter!(names::GENERATION_TOKENS, "model_name" => model()).absolute(stats.completion_tokens);
        counter!(names::PREFIX_QUERIES, "model_name" => model()).absolute(stats.prefix_query_tokens);
        counter!(names::PREFIX_HITS, "model_name" => model()).absolute(stats.prefix_hit_tokens);
        counter!(names::PREEMPTIONS, "model_name" => model()).absolute(stats.preemptions);
        counter!(names::EVICTIONS).absolute(stats.evicted_blocks);
        if let Some(error) = stats.cost_error {
            gauge!(names::COST_ERROR, "quantile" => "0.5").set(error.median);
            gauge!(names::COST_ERROR, "quantile" => "0.95").set(error.p95);
        }
        let ended = &stats.finished;
        let aborted =
            ended.cancelled + ended.expired_in_queue + ended.expired_in_prefill + ended.expired_in_decode;
        for (reason, count) in [
            ("stop", ended.end_of_text + ended.stop_string),
            ("length", ended.length),
            ("abort", aborted),
            ("error", ended.failed),
        ] {
            counter!(names::SUCCESS, "model_name" => model(), "finished_reason" => reason).absolute(count);
        }
        for (reason, count) in ended.by_name() {
            counter!(names::FINISHED, "reason" => reason).absolute(count);
        }
        counter!(names::QUEUE_FULL).absolute(stats.queue_full);
        counter!(names::STEPS).absolute(stats.steps);
        counter!(names::STEPS_FAILED).absolute(stats.steps_failed);
        let step_time = Duration::try_from_secs_f64(stats.step_seconds).unwrap_or_default();
        counter!(names::STEP_MICROSECONDS).absolute(u64::try_from(step_time.as_micros()).unwrap_or(u64::MAX));
        counter!(names::STEP_TOKENS, "phase" => "prefill").absolute(stats.prefill_tokens);
        counter!(names::STEP_TOKENS, "phase" => "decode").absolute(stats.decode_tokens);
        gauge!(names::KV_BLOCKS, "state" => "free").set(lossy(stats.blocks_free as u64));
        gauge!(names::KV_BLOCKS, "state" => "cached").set(lossy(stats.blocks_cached as u64));
        gauge!(names::KV_BLOCKS, "state" => "held").set(lossy(stats.blocks_held as u64));
        gauge!(names::KV_BLOCKS, "state" => "total").set(lossy(stats.blocks_total as u64));
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are doubles; counts stay far below 2^52")]
fn lossy(count: u64) -> f64 {
    count as f64
}

/// Counts a request as in flight while it lives.
struct InFlight {
    shared: Arc<Shared>,
    arrived: Moment,
    kind: &'static str,
    /// When the last piece of text went out.
    last_text: Option<Moment>,
}

impl InFlight {
    fn start(shared: Arc<Shared>, arrived: Moment, kind: &'static str) -> Self {
        shared.metrics.record(|| gauge!(names::IN_FLIGHT).increment(1.0));
        Self { shared, arrived, kind, last_text: None }
    }

    fn since_arrival(&self) -> Duration {
        self.shared.api.clock.now().since(self.arrived)
    }

    fn delta(&mut self) {
        let now = self.shared.api.clock.now();
        let (name, took) = match self.last_text.replace(now) {
            None => (names::TTFT, now.since(self.arrived)),
            Some(last) => (names::TEXT_GAP, now.since(last)),
        };
        self.shared.metrics.record(|| histogram!(name, "kind" => self.kind).record(took));
    }

    fn error_in_stream(&self, error: &ApiError) {
        self.shared.metrics.error(error.row.code, error.stage_name());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shared.metrics.record(|| gauge!(names::IN_FLIGHT).decrement(1.0));
    }
}

/// Watches an answer. Dropped before its end, it counts the answer as cancelled.
pub(crate) struct AnswerWatch {
    flight: InFlight,
    ended: bool,
}

impl AnswerWatch {
    pub(crate) fn start(shared: Arc<Shared>, arrived: Moment) -> Self {
        Self { flight: InFlight::start(shared, arrived, "answer"), ended: false }
    }

    /// The sources are there; gives the time since arrival.
    pub(crate) fn sources(&self) -> Duration {
        let took = self.flight.since_arrival();
        self.flight.shared.metrics.record(|| histogram!(names::TIME_TO_SOURCES).record(took));
        took
    }

    pub(crate) fn delta(&mut self) {
        self.flight.delta();
    }

    pub(crate) fn finished(&mut self, report: &FinalReport) {
        self.ended = true;
        self.flight.shared.metrics.answer(report);
    }

    pub(crate) fn failed(&mut self) {
        self.end("failed");
    }

    pub(crate) fn cancelled(&mut self) {
        self.end(FinishReason::Cancelled.name());
    }

    fn end(&mut self, finish: &'static str) {
        if !self.ended {
            self.ended = true;
            self.flight.shared.metrics.record(|| counter!(names::ANSWERS, "finish" => finish).increment(1));
        }
    }

    pub(crate) fn error_in_stream(&self, error: &ApiError) {
        self.flight.error_in_stream(error);
    }
}

impl Drop for AnswerWatch {
    fn drop(&mut self) {
        self.cancelled();
    }
}

/// Watches a chat completion.
pub(crate) struct ChatWatch {
    flight: InFlight,
}

impl ChatWatch {
    pub(crate) fn start(shared: Arc<Shared>, arrived: Moment) -> Self {
        Self { flight: InFlight::start(shared, arrived, "chat") }
    }

    pub(crate) fn delta(&mut self) {
        self.flight.delta();
    }

    pub(crate) fn error_in_stream(&self, error: &ApiError) {
        self.flight.error_in_stream(error);
    }
}
