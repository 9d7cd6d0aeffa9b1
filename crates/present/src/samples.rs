//! A small cluster for tests, with what the command line needs to show it.

use chrono::FixedOffset;
use infill_api::CurveRow;
use infill_model::CurvePoint;
pub use infill_testkit::samples::*;

use crate::charts::CurveFigure;
use crate::phrases::DisplayClock;

/// The samples' present moment, in UTC.
pub fn when() -> DisplayClock {
    DisplayClock { now: NOW, zone: FixedOffset::east_opt(0).unwrap() }
}

/// A curve that was measured at three sizes.
pub fn picture() -> CurveFigure {
    let row =
        |nodes: u32, rate: f64, width: f64| CurveRow { nodes, rate, low: rate - width, high: rate + width };
    CurveFigure {
        title: "bert <large> & more".to_owned(),
        measured: vec![row(1, 410.0, 4.0), row(2, 780.0, 20.0), row(4, 1390.0, 150.0)],
        curve: sample_profiles().profiles[0].curve.clone(),
        truth: vec![CurvePoint { nodes: 8, rate: 2300.0 }],
        now: None,
    }
}
