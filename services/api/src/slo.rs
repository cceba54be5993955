//! Until when may this request run? Limits from body and headers become absolute deadlines here, once.

use crate::error::ApiError;
use crate::error_table as table;
use axum::http::HeaderMap;
use budgets::{Deadline, Limits, Moment};
use std::time::Duration;

/// Header that limits the whole request, milliseconds.
pub(crate) const TOTAL_HEADER: &str = "x-slo-total-ms";
/// Header that limits the time to the first token, milliseconds.
pub(crate) const TTFT_HEADER: &str = "x-slo-ttft-ms";
/// Header that limits the mean time between tokens, milliseconds.
pub(crate) const TPOT_HEADER: &str = "x-slo-tpot-ms";

/// What a request may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// What was asked for: the tighter of body and header.
    pub(crate) asked: wire::Slo,
    /// Until the first token.
    pub(crate) first_token: Deadline,
    /// Until the end; always there, since `Limits::total_ms_max` holds for everyone.
    pub(crate) total: Deadline,
    /// Longest mean time between tokens.
    pub(crate) tpot: Option<Duration>,
}

/// Reads the limits of a request that arrived at `arrived`.
pub(crate) fn times(
    body: Option<wire::Slo>,
    headers: &HeaderMap,
    arrived: Moment,
    limits: &Limits,
) -> Result<Times, ApiError> {
    let body = body.unwrap_or_default();
    for (value, name) in
        [(body.ttft_ms, "slo.ttft_ms"), (body.tpot_ms, "slo.tpot_ms"), (body.total_ms, "slo.total_ms")]
    {
        if value == Some(0) {
            return Err(ApiError::of(table::INVALID_VALUE, format!("{name} must be at least 1")).param(name));
        }
    }
    let asked = wire::Slo {
        ttft_ms: tighter(body.ttft_ms, header_ms(headers, TTFT_HEADER)?),
        tpot_ms: tighter(body.tpot_ms, header_ms(headers, TPOT_HEADER)?),
        total_ms: tighter(body.total_ms, header_ms(headers, TOTAL_HEADER)?),
    };
    let total_ms = asked.total_ms.unwrap_or(u64::MAX).min(limits.total_ms_max);
    let total = Deadline::after(arrived, Duration::from_millis(total_ms));
    let first_token =
        asked.ttft_ms.map_or(total, |ms| Deadline::after(arrived, Duration::from_millis(ms)).min(total));
    Ok(Times { asked, first_token, total, tpot: asked.tpot_ms.map(Duration::from_millis) })
}

fn tighter(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn header_ms(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, ApiError> {
    let mut tightest = None;
    for value in headers.get_all(name) {
        match value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok()) {
            Some(ms) if ms > 0 => tightest = tighter(tightest, Some(ms)),
            _ => {
                let message = format!("{name} must be a whole number of milliseconds, at least 1");
                return Err(ApiError::of(table::INVALID_HEADER, message).param(name));
            }
        }
    }
    Ok(tightest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRIVED: Moment = Moment::from_nanos(7_000_000);

    fn read(body: Option<u64>, header: Option<&str>) -> Result<Times, ApiError> {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(TOTAL_HEADER, value.parse().expect("a header value"));
        }
        let limits = Limits { total_ms_max: 1_000, ..Limits::default() };
        times(
            body.map(|ms| wire::Slo { total_ms: Some(ms), ..wire::Slo::default() }),
            &headers,
            ARRIVED,
            &limits,
        )
    }

    fn check(body: Option<u64>, header: Option<&str>, expected_ms: u64) {
        let times = read(body, header).unwrap();
        assert_eq!(
            times.total.remaining(ARRIVED),
            Some(Duration::from_millis(expected_ms)),
            "{body:?} {header:?}"
        );
        assert_eq!(times.first_token, times.total);
    }

    #[test]
    fn the_tightest_limit_wins() {
        check(None, None, 1_000);
        check(Some(300), None, 300);
        check(None, Some("200"), 200);
        check(Some(300), Some("200"), 200);
        check(Some(100), Some("200"), 100);
        check(Some(5_000), Some("9999"), 1_000);
        check(Some(u64::MAX), None, 1_000);
    }

    #[test]
    fn what_is_not_a_positive_number_is_refused() {
        for header in ["0", "-1", "soon", "1.5", "", "99999999999999999999999"] {
            assert_eq!(read(None, Some(header)).unwrap_err().row, table::INVALID_HEADER, "{header}");
        }
        assert_eq!(read(Some(0), None).unwrap_err().body().error.param.as_deref(), Some("slo.total_ms"));
    }

    #[test]
    fn the_first_token_is_never_due_after_the_end() {
        let slo = wire::Slo { ttft_ms: Some(900), total_ms: Some(400), ..wire::Slo::default() };
        let times = times(Some(slo), &HeaderMap::new(), ARRIVED, &Limits::default()).unwrap();
        assert_eq!(times.first_token, times.total);
        let slo = wire::Slo { ttft_ms: Some(100), total_ms: Some(400), ..wire::Slo::default() };
        let times = super::times(Some(slo), &HeaderMap::new(), ARRIVED, &Limits::default()).unwrap();
        assert_eq!(times.first_token.remaining(ARRIVED), Some(Duration::from_millis(100)));
    }

    #[test]
    fn the_pace_comes_from_body_or_header_or_not_at_all() {
        let check = |body: Option<u64>, header: Option<&str>, expected_ms: Option<u64>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = header {
                headers.insert(TPOT_HEADER, value.parse().expect("a header value"));
            }
            let slo = wire::Slo { tpot_ms: body, ..wire::Slo::default() };
            let times = super::times(Some(slo), &headers, ARRIVED, &Limits::default()).unwrap();
            assert_eq!(times.tpot, expected_ms.map(Duration::from_millis), "{body:?} {header:?}");
            assert_eq!(times.asked.tpot_ms, expected_ms);
        };
        check(None, None, None);
        check(Some(40), None, Some(40));
        check(None, Some("30"), Some(30));
        check(Some(40), Some("30"), Some(30));
        check(Some(20), Some("30"), Some(20));
    }
}
