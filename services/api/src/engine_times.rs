//! How long did the engine's requests take, in Prometheus' text format? The engine counts them itself, bucket by bucket;
//! here they only get their names.

use crate::metric_names as names;
use engine::{Histogram, Histograms};
use std::fmt::Write;

/// All of them, with `model` as a label.
pub(crate) fn render(times: &Histograms, model: &str) -> String {
    let series = [
        (names::ENGINE_TTFT, "Submission to first token.", &times.first_token),
        (names::ENGINE_GAP, "A token to the next one of the same request.", &times.token_gap),
        (names::ENGINE_TPOT, "Mean time per output token after the first.", &times.token_mean),
        (
            names::ENGINE_E2E,
            "Submission to the last token, or to the end of a request that got none.",
            &times.total,
        ),
        (
            names::ENGINE_QUEUE,
            "Submission to the first computation, or to the end in the queue.",
            &times.queue,
        ),
        (names::ENGINE_PREFILL, "From there to the first token.", &times.prefill),
        (names::ENGINE_DECODE, "First token to last.", &times.decode),
    ];
    let label = format!("model_name=\"{}\"", escaped(model));
    let mut text = String::new();
    for (name, help, histogram) in series {
        write(&mut text, name, help, &label, histogram);
    }
    text
}

fn write(text: &mut String, name: &str, help: &str, label: &str, histogram: &Histogram) {
    let (count, sum) = (histogram.count(), histogram.sum().as_secs_f64());
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
    for (bound, below) in histogram.cumulative() {
        let _ = writeln!(text, "{name}_bucket{{{label},le=\"{bound}\"}} {below}");
    }
    let _ = writeln!(text, "{name}_bucket{{{label},le=\"+Inf\"}} {count}");
    let _ = writeln!(text, "{name}_sum{{{label}}} {sum}\n{name}_count{{{label}}} {count}\n");
}

/// A label's value: a model's name may be a path.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_there_from_the_start_and_names_are_escaped() {
        let text = render(&Histograms::default(), "C:\\models\\\"a\"");
        assert_eq!(text.matches("# TYPE ").count(), 7);
        let label = r#"{model_name="C:\\models\\\"a\"""#;
        assert!(text.contains(&format!("vllm:inter_token_latency_seconds_count{label}}} 0\n")), "{text}");
        assert!(text.contains(&format!("vllm:inter_token_latency_seconds_bucket{label},le=\"0.001\"}} 0\n")));
        assert!(text.contains(&format!("vllm:inter_token_latency_seconds_bucket{label},le=\"+Inf\"}} 0\n")));
    }
}
