//! How do the answer path's records become wire types, and wire requests questions?

use crate::context::Context;
use crate::error::ApiError;
use crate::error_table as table;
use crate::slo::Times;
use answer::{AnswerSettings, FinalReport, Question, SentenceReport};
use budgets::{Limits, Timeline};
use engine::Sampling;
use engine::{ChatMessage, FinishReason, Role, Usage};
use index::{Date, Hit, OwnedFilter, Passage, SearchResult, SourceSpan, parse_id};
use std::collections::BTreeMap;
use std::time::Duration;

/// Collections and tags that a filter may name.
const FILTER_NAMES_MAX: usize = 32;

/// Milliseconds with microseconds behind the point; finer digits are noise on the wire.
pub(crate) fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

pub(crate) fn stages_ms(timeline: &Timeline) -> BTreeMap<String, f64> {
    timeline.stages().into_iter().map(|(stage, took)| (stage.name().to_string(), ms(took))).collect()
}

/// The sampling settings that both request shapes share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SamplingFields {
    pub(crate) temperature: Option<f32>,
    pub(crate) top_p: Option<f32>,
    pub(crate) top_k: Option<usize>,
    pub(crate) min_p: Option<f32>,
    pub(crate) repetition_penalty: Option<f32>,
    pub(crate) seed: Option<u64>,
}

/// Checks the settings; without a seed, takes the request's own lot.
pub(crate) fn sampling(fields: SamplingFields, context: &Context) -> Result<Sampling, ApiError> {
    let given = [
        ("temperature", fields.temperature, 0.0, true),
        ("top_p", fields.top_p, 0.0, false),
        ("min_p", fields.min_p, 0.0, true),
        ("repetition_penalty", fields.repetition_penalty, 0.0, false),
    ];
    for (name, value, low, low_is_valid) in given {
        let Some(value) = value else { continue };
        let high = if name == "top_p" || name == "min_p" { 1.0 } else { 2.0 };
        let above = if low_is_valid { value >= low } else { value > low };
        if !(above && value <= high) {
            let from = if low_is_valid { "from" } else { "above" };
            let message = format!("{name} must lie {from} {low} up to {high}");
            return Err(ApiError::of(table::INVALID_VALUE, message).param(name));
        }
    }
    let plain = Sampling::default();
    Ok(Sampling {
        temperature: fields.temperature.unwrap_or(plain.temperature),
        top_k: fields.top_k.unwrap_or(plain.top_k),
        top_p: fields.top_p.unwrap_or(plain.top_p),
        min_p: fields.min_p.unwrap_or(plain.min_p),
        repetition_penalty: fields.repetition_penalty.unwrap_or(plain.repetition_penalty),
        seed: fields.seed.unwrap_or(context.lot),
        ..plain
    })
}

/// A count that a request may set: absent takes `default`, else it must lie from 1 to `max`.
pub(crate) fn count(
    name: &'static str,
    value: Option<usize>,
    default: usize,
    max: usize,
) -> Result<usize, ApiError> {
    match value {
        None => Ok(default),
        Some(value) if (1..=max).contains(&value) => Ok(value),
        Some(_) => {
            let message = format!("{name} must lie from 1 to {max}");
            Err(ApiError::of(table::INVALID_VALUE, message).param(name))
        }
    }
}

/// The question that a request asks. Its text and conversation are checked by the answer path.
pub(crate) fn question(
    request: wire::AnswerRequest,
    context: &Context,
    times: &Times,
    limits: &Limits,
    settings: &AnswerSettings,
) -> Result<Question, ApiError> {
    let fields = SamplingFields {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        min_p: request.min_p,
        repetition_penalty: request.repetition_penalty,
        seed: request.seed,
    };
    Ok(Question {
        passages_max: count(
            "passages_max",
            request.passages_max,
            settings.passages_max.min(limits.prompt_passages_max),
            limits.prompt_passages_max,
        )?,
        output_tokens_max: count(
            "max_tokens",
            request.max_tokens,
            settings.output_tokens_max.min(limits.output_tokens_max),
            limits.output_tokens_max,
        )?,
        sampling: sampling(fields, context)?,
        text: request.question,
        filter: context.filter(request.filter)?,
        conversation: request.conversation.into_iter().map(message).collect(),
        arrived: context.arrived,
        first_token_deadline: times.first_token,
        deadline: times.total,
        tpot: times.tpot,
        tenant: context.tenant,
    })
}

/// A filter as the index takes it, for what `tenant` may see.
pub(crate) fn filter(asked: wire::Filter, tenant: Option<&str>) -> Result<OwnedFilter, ApiError> {
    let wire::Filter { collections, tags, from, to, source } = asked;
    for (name, list) in [("filter.collections", &collections), ("filter.tags", &tags)] {
        if list.len() > FILTER_NAMES_MAX {
            let message = format!("{name} takes at most {FILTER_NAMES_MAX} names, not {}", list.len());
            return Err(ApiError::of(table::INVALID_VALUE, message).param(name));
        }
    }
    Ok(OwnedFilter {
        tenant: tenant.map(str::to_string),
        collections,
        tags,
        from: date("filter.from", from.as_deref())?,
        to: date("filter.to", to.as_deref())?,
        source: source.unwrap_or_default(),
    })
}

/// A date that a request may give.
pub(crate) fn date(name: &str, given: Option<&str>) -> Result<Option<Date>, ApiError> {
    let parse = |text: &str| {
        text.parse().map_err(|problem: String| ApiError::of(table::INVALID_VALUE, problem).param(name))
    };
    given.map(parse).transpose()
}

fn message(message: wire::Message) -> ChatMessage {
    let role = match message.role {
        wire::Role::User => Role::User,
        wire::Role::Assistant => Role::Assistant,
    };
    ChatMessage { role, content: message.content }
}

fn span(span: SourceSpan) -> wire::Span {
    wire::Span {
        start_byte: span.start_byte,
        end_byte: span.end_byte,
        start_line: span.start_line,
        end_line: span.end_line,
        page: span.page,
    }
}

pub(crate) fn source(source: answer::Source) -> wire::Source {
    wire::Source {
        number: source.number,
        title: source.title,
        headings: source.headings,
        source: source.source,
        span: span(source.span),
        text: source.text,
        score: source.score,
        document_id: parse_id(&source.document_id).1.to_string(),
        passage_id: source.passage_id,
    }
}

fn sentence(sentence: SentenceReport) -> wire::Sentence {
    let citations = sentence
        .citations
        .into_iter()
        .map(|citation| wire::Citation { number: citation.number, support: citation.support })
        .collect();
    wire::Sentence {
        text: sentence.text,
        start: sentence.start,
        end: sentence.end,
        citations,
        attributed: sentence.attributed,
    }
}

pub(crate) fn finish(reason: &FinishReason) -> wire::Finish {
    match reason {
        FinishReason::EndOfText | FinishReason::StopString(_) => wire::Finish::Stop,
        FinishReason::Length => wire::Finish::Length,
        FinishReason::ExpiredInQueue | FinishReason::ExpiredInPrefill | FinishReason::ExpiredInDecode => {
            wire::Finish::Deadline
        }
        FinishReason::Cancelled => wire::Finish::Cancelled,
        FinishReason::Failed(_) => wire::Finish::Failed,
    }
}

/// Mean time per output token after the first.
fn tpot(decode: Duration, usage: &Usage) -> Option<Duration> {
    let gaps = u32::try_from(usage.completion_tokens.saturating_sub(1)).unwrap_or(u32::MAX);
    (gaps > 0).then(|| decode / gaps)
}

fn outcome(asked: &wire::Slo, timing: &wire::Timing) -> Option<wire::SloOutcome> {
    if *asked == wire::Slo::default() {
        return None;
    }
    // A limit on a first token that never came was missed; one on the pace of a single token was not.
    #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^52 milliseconds")]
    let within = |limit: Option<u64>, took: Option<f64>, absent: bool| {
        limit.map(|limit| took.map_or(absent, |took| took <= limit as f64))
    };
    Some(wire::SloOutcome {
        ttft_met: within(asked.ttft_ms, timing.ttft_ms, false),
        tpot_met: within(asked.tpot_ms, timing.tpot_ms, true),
        total_met: within(asked.total_ms, Some(timing.total_ms), false),
    })
}

/// The final event of an answer.
pub(crate) fn final_event(report: FinalReport, id: &str, asked: &wire::Slo) -> wire::FinalEvent {
    let decode = report.timeline.get(budgets::Stage::Decode).unwrap_or_default();
    let timing = wire::Timing {
        time_to_sources_ms: ms(report.time_to_sources),
        ttft_ms: report.first_token.map(ms),
        tpot_ms: tpot(decode, &report.usage).map(ms),
        total_ms: ms(report.total),
        stages_ms: stages_ms(&report.timeline),
    };
    wire::FinalEvent {
        id: id.to_string(),
        model: report.model,
        text: report.text,
        sentences: report.sentences.into_iter().map(sentence).collect(),
        citations: wire::CitationCounts { removed: report.citations_removed, added: report.citations_added },
        grounded: report.grounded,
        finish_reason: finish(&report.finish),
        usage: wire::TokenUsage {
            prompt_tokens: report.usage.prompt_tokens,
            cached_tokens: report.usage.cached_tokens,
            completion_tokens: report.usage.completion_tokens,
            total_tokens: report.usage.prompt_tokens + report.usage.completion_tokens,
        },
        slo: outcome(asked, &timing),
        timing,
        degraded: report.degraded,
        generation: report.generation,
    }
}

fn hit(hit: &Hit) -> wire::SearchHit {
    let arm = |score: Option<index::ArmScore>| score.map(|s| wire::ArmScore { rank: s.rank, score: s.score });
    wire::SearchHit {
        title: hit.passage.title.clone(),
        headings: hit.passage.headings.clone(),
        source: hit.passage.source.clone(),
        span: span(hit.passage.span),
        text: hit.passage.text.clone(),
        score: hit.score,
        lexical: arm(hit.lexical),
        vector: arm(hit.vector),
        document_id: parse_id(&hit.passage.document_id).1.to_string(),
        passage_id: hit.passage.id.0,
    }
}

/// A passage, as its document shows it.
pub(crate) fn passage(passage: &Passage) -> wire::DocumentPassage {
    wire::DocumentPassage {
        passage_id: passage.id.0,
        headings: passage.headings.clone(),
        span: span(passage.span),
        text: passage.text.clone(),
    }
}

/// The answer to a search that took `took`.
pub(crate) fn search_response(result: &SearchResult, id: &str, took: Duration) -> wire::SearchResponse {
    wire::SearchResponse {
        id: id.to_string(),
        hits: result.hits.iter().map(hit).collect(),
        coverage: wire::Coverage { lexical: result.coverage.lexical, vector: result.coverage.vector },
        generation: result.generation,
        took_ms: ms(took),
        stages_ms: stages_ms(&result.timeline),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budgets::Moment;

    fn context() -> Context {
        Context {
            arrived: Moment::default(),
            id: "r".into(),
            lot: 99,
            tenant: engine::Tenant::default(),
            caller: None,
        }
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let check = |fields: SamplingFields, name: Option<&str>| {
            let param = sampling(fields, &context()).err().and_then(|error| error.body().error.param);
            assert_eq!(param.as_deref(), name, "{fields:?}");
        };
        let plain = SamplingFields::default();
        check(plain, None);
        check(SamplingFields { temperature: Some(0.0), ..plain }, None);
        check(SamplingFields { temperature: Some(2.0), ..plain }, None);
        check(SamplingFields { temperature: Some(2.1), ..plain }, Some("temperature"));
        check(SamplingFields { temperature: Some(-0.1), ..plain }, Some("temperature"));
        check(SamplingFields { top_p: Some(0.0), ..plain }, Some("top_p"));
        check(SamplingFields { min_p: Some(1.1), ..plain }, Some("min_p"));
        check(SamplingFields { repetition_penalty: Some(f32::NAN), ..plain }, Some("repetition_penalty"));
    }

    #[test]
    fn a_request_without_a_seed_draws_its_own() {
        assert_eq!(sampling(SamplingFields::default(), &context()).unwrap().seed, 99);
        let fields = SamplingFields { seed: Some(5), ..SamplingFields::default() };
        assert_eq!(sampling(fields, &context()).unwrap().seed, 5);
    }

    #[test]
    fn pace_needs_two_tokens() {
        let usage = |completion_tokens| Usage { completion_tokens, ..Usage::default() };
        assert_eq!(tpot(Duration::from_secs(3), &usage(0)), None);
        assert_eq!(tpot(Duration::from_secs(3), &usage(1)), None);
        assert_eq!(tpot(Duration::from_secs(3), &usage(4)), Some(Duration::from_secs(1)));
    }

    #[test]
    fn an_outcome_speaks_only_of_what_was_asked() {
        let timing = wire::Timing { ttft_ms: Some(200.0), total_ms: 900.0, ..wire::Timing::default() };
        assert_eq!(outcome(&wire::Slo::default(), &timing), None);
        let asked = wire::Slo { ttft_ms: Some(100), tpot_ms: None, total_ms: Some(1_000) };
        let expected = wire::SloOutcome { ttft_met: Some(false), tpot_met: None, total_met: Some(true) };
        assert_eq!(outcome(&asked, &timing), Some(expected));
    }
}
