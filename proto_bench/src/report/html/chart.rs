//! Charts as inline SVG: grouped bars, and lines on linear or logarithmic axes.

use std::fmt::Write;

use super::escape;
use crate::report::numbers::thousands;

/// Horizontal bars in groups, one colour a series.
pub(super) struct Bars {
    title: String,
    unit: String,
    series: Vec<String>,
    groups: Vec<(String, Vec<Option<f64>>)>,
}

/// A named line.
pub(super) struct Curve {
    pub(super) name: String,
    /// The same name has the same colour in all charts of a page.
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart of lines.
pub(super) struct Lines {
    title: String,
    unit: String,
    axis: String,
    log_y: bool,
    percentiles: bool,
    size: (f64, f64),
}

const WIDTH: f64 = 560.0;
const LABEL: f64 = 205.0;
const BAR: f64 = 13.0;
const GAP: f64 = 12.0;
const HEIGHT: f64 = 240.0;
/// Charts that stand three in a row are drawn smaller, so that their words stay readable.
const SMALL: (f64, f64) = (360.0, 200.0);
/// Left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (58.0, 12.0, 10.0, 34.0);
const COLOURS: usize = 8;

impl Bars {
    pub(super) fn new(title: &str, unit: &str, series: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            series: series.iter().map(|name| (*name).to_owned()).collect(),
            groups: Vec::new(),
        }
    }

    pub(super) fn group(&mut self, label: &str, values: Vec<Option<f64>>) {
        self.groups.push((label.to_owned(), values));
    }

    pub(super) fn render(&self) -> String {
        let values = || self.groups.iter().flat_map(|(_, values)| values.iter().flatten().copied());
        let largest = values().fold(0.0, f64::max);
        if largest <= 0.0 {
            return String::new();
        }
        // One value far beyond the others would press them all into the axis.
        let mut sorted: Vec<f64> = values().collect();
        sorted.sort_by(f64::total_cmp);
        let usual = sorted.get(sorted.len() * 9 / 10).copied().unwrap_or(largest);
        let scale_end = if largest > usual * 3.0 { usual * 1.6 } else { largest };
        let room = WIDTH - LABEL - 70.0;
        let (mut y, mut marks) = (4.0, String::new());
        for (label, values) in &self.groups {
            let present: Vec<(usize, f64)> =
                values.iter().enumerate().filter_map(|(at, value)| Some((at, (*value)?))).collect();
            #[expect(clippy::cast_precision_loss, reason = "a handful of bars")]
            let height = present.len().max(1) as f64 * BAR;
            text(&mut marks, LABEL - 8.0, y + height / 2.0 + 4.0, "end", label);
            if present.is_empty() {
                text(&mut marks, LABEL, y + 10.0, "start", "–");
            }
            for (series, value) in present {
                let length = (value / scale_end).min(1.0) * room;
                let cut = if value > scale_end { " »" } else { "" };
                write!(
                    marks,
                    "<rect x=\"{LABEL}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"var(--s{})\"/>",
                    y + 1.0,
                    length.max(1.0),
                    BAR - 2.0,
                    series % COLOURS
                )
                .ok();
                value_text(
                    &mut marks,
                    LABEL + length + 5.0,
                    y + BAR - 3.0,
                    &format!("{}{cut}", short(value)),
                );
                y += BAR;
            }
            y += if height > BAR { GAP } else { GAP * 0.7 };
        }
        let names: Vec<(&str, usize)> =
            self.series.iter().enumerate().map(|(number, name)| (name.as_str(), number)).collect();
        figure(&self.title, &self.unit, WIDTH, y, &marks, &names)
    }
}

impl Lines {
    /// Latency in microseconds against percentiles, both logarithmic.
    pub(super) fn percentiles(title: &str) -> Self {
        Self { percentiles: true, size: SMALL, ..Self::against(title, "us", "percentile") }.logarithmic()
    }

    pub(super) fn over_time(title: &str, unit: &str) -> Self {
        Self { size: SMALL, ..Self::against(title, unit, "seconds") }
    }

    pub(super) fn against(title: &str, unit: &str, axis: &str) -> Self {
        Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            axis: axis.to_owned(),
            log_y: false,
            percentiles: false,
            size: (WIDTH, HEIGHT),
        }
    }

    pub(super) fn logarithmic(mut self) -> Self {
        self.log_y = true;
        self
    }

    pub(super) fn render(&self, curves: &[Curve]) -> String {
        let points = || curves.iter().flat_map(|curve| curve.points.iter().copied());
        if points().next().is_none() {
            return String::new();
        }
        let (left, right, top, bottom) = MARGIN;
        let (width, height) = self.size;
        let (x_low, x_high) = bounds(points().map(|(x, _)| x), self.percentiles);
        let (y_low, y_high) = self.y_bounds(points().map(|(_, y)| y));
        let place_x = |x: f64| left + (x - x_low) / (x_high - x_low) * (width - left - right);
        let place_y = |y: f64| {
            let share = (self.height_of(y) - y_low) / (y_high - y_low);
            height - bottom - share * (height - top - bottom)
        };
        let mut marks = String::new();
        for (value, label) in self.y_ticks(y_low, y_high) {
            let y = place_y(value);
            write!(
                marks,
                "<line class=g x1=\"{left}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                width - right
            )
            .ok();
            text(&mut marks, left - 6.0, y + 4.0, "end", &label);
        }
        for (value, label) in self.x_ticks(x_low, x_high) {
            text(&mut marks, place_x(value), height - bottom + 15.0, "middle", &label);
        }
        text(&mut marks, f64::midpoint(left, width), height - 4.0, "middle", &self.axis);
        for curve in curves {
            let path: Vec<String> =
                curve.points.iter().map(|(x, y)| format!("{:.1},{:.1}", place_x(*x), place_y(*y))).collect();
            let colour = curve.colour % COLOURS;
            write!(marks, "<polyline class=l points=\"{}\" stroke=\"var(--s{colour})\"/>", path.join(" "))
                .ok();
            if curve.points.len() <= 12 {
                for (x, y) in &curve.points {
                    let (x, y) = (place_x(*x), place_y(*y));
                    write!(marks, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"var(--s{colour})\"/>")
                        .ok();
                }
            }
        }
        let names: Vec<(&str, usize)> =
            curves.iter().map(|curve| (curve.name.as_str(), curve.colour)).collect();
        let (width, height) = self.size;
        figure(&self.title, &self.unit, width, height, &marks, &names)
    }

    fn height_of(&self, y: f64) -> f64 {
        if self.log_y { y.max(0.1).log10() } else { y }
    }

    fn y_bounds(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        if self.log_y {
            let (low, high) = bounds(values.map(|value| value.max(0.1).log10()), false);
            return (low.floor(), high.ceil().max(low.floor() + 1.0));
        }
        // Linear axes start at zero: a cut axis makes small differences look large.
        let high = values.fold(0.0, f64::max);
        (0.0, if high > 0.0 { high * 1.08 } else { 1.0 })
    }

    fn y_ticks(&self, low: f64, high: f64) -> Vec<(f64, String)> {
        if self.log_y {
            #[expect(clippy::cast_possible_truncation, reason = "powers of ten of latencies")]
            return (low as i32..=high as i32)
                .map(|power| 10_f64.powi(power))
                .map(|value| (value, short(value)))
                .collect();
        }
        round_steps(low, high).into_iter().map(|value| (value, short(value))).collect()
    }

    fn x_ticks(&self, low: f64, high: f64) -> Vec<(f64, String)> {
        if self.percentiles {
            let ticks = [
                (0.0, "0"),
                (0.301, "50"),
                (1.0, "90"),
                (2.0, "99"),
                (3.0, "99.9"),
                (4.0, "99.99"),
                (5.0, "99.999"),
            ];
            return ticks
                .iter()
                .filter(|(x, _)| *x <= high)
                .map(|(x, label)| (*x, (*label).to_owned()))
                .collect();
        }
        round_steps(low, high).into_iter().map(|value| (value, short(value))).collect()
    }
}

fn bounds(values: impl Iterator<Item = f64>, from_zero: bool) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    let low = if from_zero { 0.0 } else { low };
    if high > low { (low, high) } else { (low - 0.5, low + 0.5) }
}

/// Five or so round numbers between two bounds.
fn round_steps(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|factor| factor * power).find(|step| *step >= rough);
    let step = step.unwrap_or(power * 10.0);
    let first = (low / step).ceil() * step;
    (0..12)
        .map(|number| first + f64::from(number) * step)
        .take_while(|value| *value <= high * 1.000_001)
        .collect()
}

/// A number short enough for an axis.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{:.1}M", value / 1e6).replace(".0M", "M"),
        size if size >= 1e4 => format!("{:.0}k", value / 1e3),
        size if size >= 1e3 => thousands(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}").replace(".0", ""),
        _ => format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(words)).ok();
}

fn value_text(out: &mut String, x: f64, y: f64, words: &str) {
    write!(out, "<text class=v x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(words)).ok();
}

fn figure(title: &str, unit: &str, width: f64, height: f64, marks: &str, series: &[(&str, usize)]) -> String {
    let mut key = String::new();
    if series.len() > 1 {
        key.push_str("<div class=key>");
        for (name, colour) in series {
            write!(
                key,
                "<span><i style=\"background:var(--s{})\"></i>{}</span>",
                *colour % COLOURS,
                escape(name)
            )
            .ok();
        }
        key.push_str("</div>");
    }
    format!(
        "<figure><figcaption>{} <span>{}</span></figcaption><svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         aria-label=\"{}\">{marks}</svg>{key}</figure>",
        escape(title),
        escape(unit),
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(round_steps(0.0, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(round_steps(3_000.0, 30_000.0), [10_000.0, 20_000.0, 30_000.0]);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (0.25, "0.25"), (12.0, "12"), (1_500.0, "1,500"), (102_183.0, "102k")]
        {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn charts_without_values_are_left_out() {
        assert_eq!(Bars::new("t", "u", &["a"]).render(), "");
        assert_eq!(Lines::against("t", "u", "x").render(&[]), "");
    }
}
