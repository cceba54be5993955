//! Which figures are exported, under which names? vLLM's well-known names where the meaning is the same, ours elsewhere.

use metrics::{describe_counter, describe_gauge, describe_histogram};

// The engine's figures, in vLLM's words. Times count from the submission to the engine.
pub(crate) const RUNNING: &str = "vllm:num_requests_running";
pub(crate) const WAITING: &str = "vllm:num_requests_waiting";
pub(crate) const KV_USAGE: &str = "vllm:kv_cache_usage_perc";
pub(crate) const PROMPT_TOKENS: &str = "vllm:prompt_tokens_total";
pub(crate) const GENERATION_TOKENS: &str = "vllm:generation_tokens_total";
pub(crate) const PREFIX_QUERIES: &str = "vllm:prefix_cache_queries_total";
pub(crate) const PREFIX_HITS: &str = "vllm:prefix_cache_hits_total";
pub(crate) const PREEMPTIONS: &str = "vllm:num_preemptions_total";
pub(crate) const ITERATION_TOKENS: &str = "vllm:iteration_tokens_total";
pub(crate) const SUCCESS: &str = "vllm:request_success_total";
pub(crate) const ENGINE_TTFT: &str = "vllm:time_to_first_token_seconds";
pub(crate) const ENGINE_GAP: &str = "vllm:inter_token_latency_seconds";
pub(crate) const ENGINE_TPOT: &str = "vllm:request_time_per_output_token_seconds";
pub(crate) const ENGINE_E2E: &str = "vllm:e2e_request_latency_seconds";
pub(crate) const ENGINE_QUEUE: &str = "vllm:request_queue_time_seconds";
pub(crate) const ENGINE_PREFILL: &str = "vllm:request_prefill_time_seconds";
pub(crate) const ENGINE_DECODE: &str = "vllm:request_decode_time_seconds";

// The service's figures. Times count from the arrival of the HTTP request.
pub(crate) const HTTP_REQUESTS: &str = "riposte_http_requests_total";
pub(crate) const HTTP_SECONDS: &str = "riposte_http_head_seconds";
pub(crate) const ERRORS: &str = "riposte_errors_total";
pub(crate) const IN_FLIGHT: &str = "riposte_requests_in_flight";
pub(crate) const ANSWERS: &str = "riposte_answers_total";
pub(crate) const TIME_TO_SOURCES: &str = "riposte_time_to_sources_seconds";
pub(crate) const TTFT: &str = "riposte_time_to_first_token_seconds";
pub(crate) const ANSWER_SECONDS: &str = "riposte_answer_seconds";
pub(crate) const SEARCH_SECONDS: &str = "riposte_search_seconds";
pub(crate) const STAGE_SECONDS: &str = "riposte_stage_seconds";
pub(crate) const CITATIONS_REMOVED: &str = "riposte_citations_removed_total";
pub(crate) const CITATIONS_ADDED: &str = "riposte_citations_added_total";
pub(crate) const UNGROUNDED: &str = "riposte_answers_ungrounded_total";
pub(crate) const DEGRADED: &str = "riposte_answers_degraded_total";
pub(crate) const FINISHED: &str = "riposte_engine_requests_total";
pub(crate) const QUEUE_FULL: &str = "riposte_engine_queue_full_total";
pub(crate) const STEPS: &str = "riposte_engine_steps_total";
pub(crate) const STEPS_FAILED: &str = "riposte_engine_steps_failed_total";
pub(crate) const STEP_MICROSECONDS: &str = "riposte_engine_step_microseconds_total";
pub(crate) const STEP_TOKENS: &str = "riposte_engine_step_tokens_total";
pub(crate) const STEP_SECONDS: &str = "riposte_engine_step_seconds";
pub(crate) const PREDICTED_SECONDS: &str = "riposte_engine_step_predicted_seconds";
pub(crate) const PLAN_SECONDS: &str = "riposte_engine_step_planning_seconds";
pub(crate) const COST_ERROR: &str = "riposte_engine_cost_error_ratio";
pub(crate) const EVICTIONS: &str = "riposte_kv_blocks_evicted_total";
pub(crate) const TEXT_GAP: &str = "riposte_text_gap_seconds";
pub(crate) const KV_BLOCKS: &str = "riposte_kv_blocks";
pub(crate) const INDEX_GENERATION: &str = "riposte_index_generation";
pub(crate) const INDEX_DOCUMENTS: &str = "riposte_index_documents";
pub(crate) const INDEX_PASSAGES: &str = "riposte_index_passages";
pub(crate) const INDEX_FRESH: &str = "riposte_index_passages_fresh";
pub(crate) const INDEX_DEAD: &str = "riposte_index_passages_dead";
pub(crate) const DOCUMENTS: &str = "riposte_documents_total";

/// Bounds of all histograms, seconds: from a lexical search to the longest answer.
pub(crate) const BUCKETS_S: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0,
    320.0, 640.0,
];

/// Bounds of the tokens of a step.
pub(crate) const BUCKETS_TOKENS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0, 4_096.0, 8_192.0];

/// Bounds of the time that planning a step takes, seconds.
pub(crate) const BUCKETS_PLAN_S: &[f64] = &[2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2e-2];

/// Says what each figure means; goes to the recorder that is current.
pub(crate) fn describe() {
    describe_engine();
    describe_service();
}

fn describe_engine() {
    describe_gauge!(RUNNING, "Sequences in prefill or decode.");
    describe_gauge!(WAITING, "Requests for which nothing was computed yet.");
    describe_gauge!(KV_USAGE, "Share of the KV blocks that are held, 0 to 1.");
    describe_counter!(PROMPT_TOKENS, "Prompt tokens of requests that the engine took.");
    describe_counter!(GENERATION_TOKENS, "Tokens made.");
    describe_counter!(PREFIX_QUERIES, "Prompt tokens that were looked up in the prefix cache.");
    describe_counter!(PREFIX_HITS, "Prompt tokens whose KV was in the prefix cache.");
    describe_counter!(PREEMPTIONS, "Sequences that gave way to more urgent ones and were queued again.");
    describe_histogram!(ITERATION_TOKENS, "Tokens computed in a step.");
    describe_counter!(SUCCESS, "Ended engine requests: stop, length, abort (cancelled or expired) or error.");
    describe_counter!(FINISHED, "Ended engine requests by exact reason.");
    describe_counter!(QUEUE_FULL, "Requests refused because the engine's queue was full.");
    describe_counter!(STEPS, "Engine steps.");
    describe_counter!(STEPS_FAILED, "Engine steps that failed.");
    describe_counter!(STEP_MICROSECONDS, "Time spent in engine steps, microseconds.");
    describe_counter!(STEP_TOKENS, "Tokens computed in engine steps, by phase.");
    describe_histogram!(STEP_SECONDS, "Time of a step in the runner.");
    describe_histogram!(PREDICTED_SECONDS, "Time of a step in the runner, as the cost model expected it.");
    describe_histogram!(PLAN_SECONDS, "Time of planning a step.");
    describe_gauge!(
        COST_ERROR,
        "How far predicted step times were off, as a share, over the last 512 steps."
    );
    describe_counter!(EVICTIONS, "Cached KV blocks that were given to others.");
    describe_gauge!(KV_BLOCKS, "KV blocks by state.");
}

fn describe_service() {
    describe_counter!(HTTP_REQUESTS, "HTTP requests by route, method and status.");
    describe_histogram!(HTTP_SECONDS, "Arrival to the head of the response.");
    describe_counter!(ERRORS, "Failures by code and stage, in responses and in streams.");
    describe_gauge!(IN_FLIGHT, "Answers and chat completions that have not ended.");
    describe_counter!(ANSWERS, "Ended answers by finish reason.");
    describe_histogram!(TIME_TO_SOURCES, "Arrival of a question to its sources.");
    describe_histogram!(TTFT, "Arrival of a request to its first text, by kind.");
    describe_histogram!(TEXT_GAP, "Time between two pieces of a stream's text, by kind.");
    describe_histogram!(ANSWER_SECONDS, "Arrival of a question to its final event.");
    describe_histogram!(SEARCH_SECONDS, "Arrival of a search to its result.");
    describe_histogram!(STAGE_SECONDS, "Time of an answer by stage.");
    describe_counter!(CITATIONS_REMOVED, "Citations removed because no source bore them.");
    describe_counter!(CITATIONS_ADDED, "Citations added to sentences that a source clearly bears.");
    describe_counter!(UNGROUNDED, "Answers that said that the documents hold none.");
    describe_counter!(DEGRADED, "Answers from which something was left out to keep a limit.");
    describe_gauge!(INDEX_GENERATION, "Snapshot of the index that is served.");
    describe_gauge!(INDEX_DOCUMENTS, "Documents in the index.");
    describe_gauge!(INDEX_PASSAGES, "Passages in the index.");
    describe_gauge!(INDEX_FRESH, "Passages that came since the snapshot and are held in memory.");
    describe_gauge!(INDEX_DEAD, "Deleted passages that take room until the next snapshot.");
    describe_counter!(DOCUMENTS, "Documents created, replaced, unchanged, failed or deleted over HTTP.");
}
